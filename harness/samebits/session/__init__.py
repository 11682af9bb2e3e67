"""One run, composed from the layers below: checks on a bench, diagnosis, verdict, report text."""
