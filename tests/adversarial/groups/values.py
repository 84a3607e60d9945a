"""Is a text that is no configuration refused before anything is written?"""

from run import Run
from scene import Attempt
from steps import config_text, furnish, has_text, is_absent, text_of

# Texts that are no configuration, and the message. Tests of readers and fuzzing have more.
NO_CONFIGURATION = [
    ("An empty file", "", "devices"), ("A list", "[1, 2]\n", "mapping"),
    ("UTF-16", "name: a\n".encode("utf-16"), "UTF|YAML|devices"),
    ("An ELF program", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 8, "."),
    ("Five million brackets", "[" * 5_000_000, "."),
]


def attempts():
    for name, text, said in NO_CONFIGURATION:
        yield Attempt(f"{name} in place of a configuration is refused within seconds",
                      [furnish(), text_of("base.yaml", text),
                       Run("train base.yaml --json", code=2, err=said, within_s=15),
                       is_absent("r", "runs")], is_slow=len(text) > 5_000_000)
    yield Attempt("An override of plain text is taken whole, whatever it would mean in YAML",
                  [furnish(), Run("train base.yaml output_dir=r 'name=a\n---\nb'"),
                   has_text("r/config.yaml", r'^name: "a\\n---\\nb"$')])


def random_attempt(chance, number):
    """A configuration with a few bytes changed: refused, does not fit, or trains."""
    data = bytearray(config_text({"train.max_steps": 2}).encode())
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(data))
        what = chance.randrange(3)
        if what == 0:
            data[place] = chance.randrange(256)
        elif what == 1:
            del data[place]
        else:
            data[place:place] = bytes([chance.choice(b"{}[]:,&*!|>'\"%@`#-? \n\t09aexn")])
    return Attempt(f"seed {number}: a configuration with random bytes is refused, or is one",
                   [furnish(), text_of("base.yaml", bytes(data)),
                    Run("train base.yaml --json", code=(0, 1, 2, 3))])
