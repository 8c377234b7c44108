"""What causes a plan's cost: ``explain`` one plan, the ``Difference`` of two, the worth of devices to a plan."""
