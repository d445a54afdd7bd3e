"""Logs in SQLite: a file is a log, with what SQLite and this package keep beside it.

In layers, from those that know least:

- pages of a file, the names of files, the rows of the log's settings;
- which files there are: the database, what was set aside, and how many commits must be there;
- the tables, and the statements that read them;
- transactions that write, schemas of earlier versions, backups, and the replacement of a file by another;
- how a log is found and made, its write-ahead log and when that is emptied, and what is left of a damaged file;
- the files that this process has open;
- the storage, which joins them.
"""
