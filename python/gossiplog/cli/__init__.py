"""The command line `gossiplog`: `main` knows all commands, each is a module or a package."""
