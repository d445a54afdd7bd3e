"""The benchmarks: what is measured, on which data, and against what floors.

`gossiplog bench` runs them for a user; `benches/`, in a checkout, runs them at full size and beside bare Rust.
"""
