"""A server that has no model: it sends made-up tokens at known times and logs when it did.

A client driven against it shows the client's own error. Its answers are simulated, and /info
says so.
"""
