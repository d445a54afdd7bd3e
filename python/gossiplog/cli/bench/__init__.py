"""`gossiplog bench`: how fast this machine is.

`benches/`, in a checkout, runs the same at full size and beside bare Rust.
"""
