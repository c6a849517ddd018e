"""Steps of loops: functions with their arguments or batches, and many steps in one compiled call."""
