"""`gossiplog pipeline`: jobs on Apache Spark."""
