"""A live picture of a network: what happened, folded into a state, streamed to a page in the browser, or recorded.

The layers: `events`, the vocabulary of all who report; `state`, what follows from the events; `recording`, a file of
them; `stream`, the HTTP application; `page/`, what the browser runs, which folds the same events in the same way.
"""
