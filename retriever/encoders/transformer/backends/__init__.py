"""Forward passes without torch: NumPy for a few texts, OpenVINO for many."""
