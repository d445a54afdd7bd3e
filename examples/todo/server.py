from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

import todo
from fastapi import FastAPI, Header, HTTPException
from fastapi.sse import EventSourceResponse, ServerSentEvent

import gossiplog

log: gossiplog.AsyncLog[todo.Add | todo.Done]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    global log
    async with todo.open_log("server.db") as log, gossiplog.Hub(log) as hub:
        app.mount("/log", hub)
        yield


app = FastAPI(lifespan=lifespan)
app.get("/items")(lambda: todo.items("server.db"))


@app.post("/items", status_code=201)
async def add(text: todo.Text, by: todo.Text) -> str:
    return (await log.append(todo.Add(text=text, by=by, at=datetime.now(UTC)))).content_id


@app.post("/items/{item}/done", status_code=201)
async def done(item: str, by: todo.Text) -> str:
    if all(known["id"] != item for known in todo.items("server.db")):
        raise HTTPException(404)
    return (await log.append(todo.Done(item=item, by=by, at=datetime.now(UTC)))).content_id


@app.get("/changes", response_class=EventSourceResponse)
async def changes(last_event_id: Annotated[int, Header()] = 0) -> AsyncIterator[ServerSentEvent]:
    async for messages in log.subscribe(after=last_event_id):
        yield ServerSentEvent(data=[message.payload for message in messages], id=str(messages.cursor))
