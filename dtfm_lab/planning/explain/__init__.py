"""What a plan's cost comes from: ``explain`` one plan, the ``Difference`` of two, the worth of devices to a plan."""
