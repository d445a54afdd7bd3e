"""The page of a log that a hub serves: its messages as a graph, their authors, who is connected, and what went wrong.

The layers: `messages`, of which the page shows some, short; `activity`, what follows from the hub's events; `server`,
the stream, the answers and their paths; `page/`, what the browser runs, with the files of `gossiplog.net.http.page`.
"""
