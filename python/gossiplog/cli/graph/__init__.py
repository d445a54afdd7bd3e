"""`gossiplog graph`: a log's latest messages, drawn in text."""
