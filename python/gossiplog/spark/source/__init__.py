"""The data source `gossiplog`: logs read and written as DataFrames, in batches and as streams."""
