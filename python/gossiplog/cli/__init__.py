# Imports go one way: main, which alone knows all commands; the commands, a module each; what several of them share
# (where the log is and how it is opened, keys, JSON Lines, graphs, settings); output.
"""The command line: `gossiplog`."""
