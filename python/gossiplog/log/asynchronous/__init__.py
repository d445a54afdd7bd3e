"""A log for coroutines: its calls run on worker threads, and none holds up the event loop.

From the bottom: `calls` that are stopped and `appends` that share a transaction, `iteration` in pages and as messages
arrive, a `view`, the `log`, and its `opening`.
"""
