"""Starting, watching and reading programs: shared by the backends that are programs."""
