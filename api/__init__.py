"""The outside surface: HTTP, SSE, command line, web page, and the composition root."""
