import sys
from datetime import UTC, datetime

import anyio.to_thread
import todo

import gossiplog


async def show(log: gossiplog.AsyncLog[todo.Add | todo.Done], path: str) -> None:
    async for _ in log.subscribe(after=0):
        for item in todo.items(path):
            print(f"done by {item['done_by']}:" if item["done_by"] else "to do:", item["text"], flush=True)


async def main(name: str, url: str) -> None:
    path = f"{name}.db"
    async with anyio.create_task_group() as tasks, todo.open_log(path) as log, gossiplog.connect(log, url) as client:
        tasks.start_soon(show, log, path)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            match line.split(maxsplit=1):
                case ["add", text]:
                    await log.append(todo.Add(text=text.strip()[:200], by=name, at=datetime.now(UTC)))
                case ["done", text]:
                    for item in todo.items(path):
                        if item["text"] == text.strip():
                            await log.append(todo.Done(item=item["id"], by=name, at=datetime.now(UTC)))
        with anyio.move_on_after(5):  # what the server does not get now it gets at the next start
            await client.synced()


anyio.run(main, sys.argv[1], sys.argv[2])
