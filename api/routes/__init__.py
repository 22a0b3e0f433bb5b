"""One module per resource: its routes, in the order in which the documentation shows them."""
