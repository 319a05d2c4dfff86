"""Many runs of one question: points and seeds, what failed, and settings that are searched for."""
