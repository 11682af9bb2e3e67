"""One file per backend behind `protocol.Backend`; `registry` chooses."""
