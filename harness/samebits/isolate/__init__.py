"""Fresh processes: template, worker, and containment of crashes and hangs. Standard library only.

| file | whose side | what |
| --- | --- | --- |
| `supervisor`, `attempt`, `process` | parent | jobs, one worker over some cases, a template and its workers |
| `template`, `worker`, `journal` | child | forks workers; runs the cases; writes down what they say |
| `environment`, `device`, `death` | parent | what children see; which card; what a death means |
"""
