"""The pane Systems: what each training system would do with the network that is drawn."""
