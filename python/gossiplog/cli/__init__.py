# main <- {messages, sync, export, import_git, import_values, pipeline, demo, bench, completion, help}
# <- {drawing, lines, keys, history} <- {logs, authors, graph} <- output.
# One module a command group, and only main knows them all. What they share: where results go (output), whose key signs
# (keys), how authors are named (authors), how JSON Lines are read and written (lines), how Git's history is read
# (history) and how messages are drawn (graph, drawing).
"""The command line: `gossiplog`."""
