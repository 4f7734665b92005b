"""Pictures of every page, at two sizes and in two themes, from demos with data of their own."""
