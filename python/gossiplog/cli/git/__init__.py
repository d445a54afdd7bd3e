"""`gossiplog import-git`: the history of a Git repository as a log."""
