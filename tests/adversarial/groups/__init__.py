"""The attempts, one file per group. Each has `attempts()`, the rows; some draw more by a seed."""

from groups import (budgets, exactness, files, output, resume, security, starts, surroundings,
                    values)

GROUPS = {"exactness": exactness, "budgets": budgets, "values": values, "files": files,
          "resume": resume, "starts": starts, "security": security, "output": output,
          "surroundings": surroundings}
# By group, a function of a random generator and the seed's number.
RANDOM = {"resume": resume.random_attempt, "files": files.random_attempt,
          "values": values.random_attempt}
