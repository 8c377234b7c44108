"""Plans for what people pay for: the seconds of a simulated iteration, and its dollars."""
