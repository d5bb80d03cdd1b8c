"""A trial -> text for a person. Reads records, computes no verdict, removes control characters from what it shows."""
