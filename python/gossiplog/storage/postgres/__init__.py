"""Logs in Postgres: a schema of a server's database is a log.

In layers, from those that know least:

- where a log is: its URL, without the driver;
- connections, what their errors mean, the rows of the log's settings;
- the tables, and the statements that read them;
- how a log is found, made, looked at and backed up, what `apply` may do in it, and how commits are announced;
- transactions that write, and the replacement of a whole log;
- the storage, which joins them.

Nothing is imported here: all but the URL takes psycopg, which is an extra.
"""
