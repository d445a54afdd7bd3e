# main <- {logs, messages, sync, import_git, import_values, pipeline, demo, bench} <- {keys, history, graph} <- output.
# One module a command group, and only main knows them all. What they share: where results go (output), whose key signs
# (keys), how Git's history is read (history) and how messages are drawn (graph).
"""The command line: `gossiplog`."""
