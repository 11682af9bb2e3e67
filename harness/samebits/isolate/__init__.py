"""Fresh processes: template, worker, and containment of crashes and hangs. Standard library only."""
