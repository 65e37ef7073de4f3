"""The HTTP half of the embedded server: validation, queue, continuous batching, answers."""
