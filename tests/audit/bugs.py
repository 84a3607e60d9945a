"""Deliberate bugs, and for each the test that must catch it.

Each replaces text that stands exactly once in one source file.
"""
from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    test: str  # a filter of GoogleTest; at least one of its tests must fail


WRITER = "trainer/checkpoint/generation_writer.cpp"
STORE = "trainer/checkpoint/checkpoint_store.cpp"
GENERATION = "trainer/checkpoint/generation.cpp"
MANIFEST = "trainer/checkpoint/manifest.cpp"
ATOMIC = "trainer/storage/atomic_file.cpp"
JOURNAL = "trainer/journal/journal.cpp"
LOCK = "trainer/storage/run_lock.cpp"
CONTRACT = "trainer/config/contract.cpp"
OPEN = "core/os/open_file.cpp"
TENSORS = "core/safetensors/safetensors.cpp"
TENSORS_JSON = "core/safetensors/safetensors_json.cpp"

CRASH = "Scenarios/CheckpointCrash.KeepsRecordedCheckpoints/"
FAULT = "Every/CheckpointFault.KeepsRecordedCheckpoints/"

BUGS = [
    # The order of a commit.
    Bug("files are not synced", WRITER, "  file.sync();\n", "", CRASH + "FirstCommit"),
    Bug("the manifest is not synced", WRITER, "  finish(manifest_file);",
        "  manifest_file.close();", CRASH + "FirstCommit"),
    Bug("the folder is not synced", WRITER, "  files.sync_folder(folder);\n", "",
        CRASH + "FirstCommit"),
    Bug("the parent is not synced", STORE, "    is_renamed = true;\n    files_.sync_folder(folder_);",
        "    is_renamed = true;", CRASH + "FirstCommit"),
    Bug("renamed before it is written", STORE,
        "    write_generation(files_, temporary_of(number), content, options_.block_bytes);\n"
        "    files_.rename(temporary_of(number), path_of(number));",
        "    files_.rename(temporary_of(number), path_of(number));\n"
        "    write_generation(files_, path_of(number), content, options_.block_bytes);",
        CRASH + "SecondCommit"),
    Bug("written under its own name", STORE,
        "return folder_ / (name_of(number) + kTemporary);", "return folder_ / name_of(number);",
        CRASH + "FirstCommit"),
    Bug("recorded before it is durable", STORE,
        "    is_renamed = true;\n    files_.sync_folder(folder_);",
        "    is_renamed = true;\n    if (record) record(number);\n"
        "    files_.sync_folder(folder_);", CRASH + "FirstCommit"),
    Bug("the oldest goes first", STORE,
        "  bool is_renamed = false;\n",
        "  bool is_renamed = false;\n  if (there.size() > 1) remove(there.front());\n",
        FAULT + "EIOOnce"),
    Bug("the folder of checkpoints is not durable", STORE,
        "  files.sync_folder(parent_of(folder));\n", "", CRASH + "FirstCommit"),
    Bug("a folder whose sync failed is believed in", STORE,
        "      files.remove_folder(folder);\n", "", FAULT + "EIOOnce"),
    Bug("space is not reserved", WRITER, "  file.preallocate(bytes);\n", "",
        "CheckpointStore.PreallocatesAllFilesBeforeWriting"),
    Bug("space is not asked for", STORE,
        "  require_space(generation_bytes(content, options_.block_bytes));\n  const auto there",
        "  const auto there", "CheckpointStore.ChecksSpaceBeforeWriting"),
    # Failures.
    Bug("a failed sync is repeated", OPEN, "void OpenFile::sync() { files_->sync(handle_); }",
        "void OpenFile::sync() {\n  try {\n    files_->sync(handle_);\n"
        "  } catch (const IoError&) {\n    files_->sync(handle_);\n  }\n}", FAULT + "EIOOnce"),
    Bug("an interrupted call fails", OPEN, "constexpr int kTries = 1000;",
        "constexpr int kTries = 1;", "OpenFile.CompletesShortAndInterruptedCalls"),
    Bug("a short write counts as whole", OPEN,
        "    if (count == 0) throw IoError(\"cannot write\", path_, EIO);\n",
        "    if (count > 0) return;\n", FAULT + "ShortForEver"),
    Bug("a number is used again after a failure", STORE,
        "last_ = std::max(last_, there.empty() ? 0 : there.back()) + 1",
        "last_ = (there.empty() ? 0 : there.back()) + 1",
        "CheckpointStore.RemovesAFailedWriteAndSkipsItsNumber"),
    Bug("what a failure leaves stays", STORE, "    abandon(number, is_renamed);\n",
        "    (void)is_renamed;\n", "CheckpointStore.RemovesAFailedWrite*"),
    # Removal.
    Bug("a generation is removed under its own name", STORE,
        "  files_.rename(path_of(number), temporary_of(number));\n  files_.sync_folder(folder_);\n",
        "  files_.rename(path_of(number), temporary_of(number));\n", CRASH + "Rotation"),
    Bug("damaged ones count as kept", STORE, "  if (sound_.contains(number)) return true;\n",
        "  return true;\n", "CheckpointStore.CountsOnlyIntactGenerationsAsKept"),
    Bug("one too few is kept", STORE, "if (kept == options_.keep)",
        "if (kept + 1 >= options_.keep)", "CheckpointStore.KeepsTheConfiguredNumber"),
    Bug("what a crash left stays", STORE,
        "  for (const auto number : numbers_in(files_, folder_, kTemporary)) remove_temporary(number);"
        "\n", "", "CheckpointStore.RemovesOnlyItsOwnLeftovers"),
    # Reading.
    Bug("hashes of blocks are not compared", GENERATION,
        "if (xxh3(block_) != entry_.blocks[index])", "if (entry_.blocks[index].empty())",
        "CheckpointDamage.DetectsTenThousandRandomBitFlips"),
    Bug("lengths of files are believed", GENERATION, "if (size != entry_.bytes)",
        "if (size < entry_.bytes)", "CheckpointDamage.DetectsEveryWrongLength"),
    Bug("opened without reading", STORE, "      generation.verify();\n", "",
        "CheckpointDamage.DetectsEveryMissingFile"),
    Bug("damage is not said", STORE,
        "    } catch (const CorruptData& error) {\n"
        "      newest.findings.push_back({number, error.what()});\n",
        "    } catch (const CorruptData&) {\n",
        "CheckpointStore.ReportsDamageAndOpensThePreviousGeneration"),
    Bug("a block is checked when the file is opened only", GENERATION,
        "    if (index == loaded_) return;\n", "    if (loaded_ != kNone) return;\n",
        "CheckpointStore.RoundTrips"),
    Bug("the manifest's own hash is not compared", MANIFEST,
        "if (text.substr(body.size()) != last_line(body))", "if (body.empty())",
        "Manifest.ReportsAnIntactUnknownVersionAsNewer"),
    Bug("a manifest may say things in its own way", MANIFEST, "if (to_text(manifest) != text)",
        "if (text.empty())", "Manifest.RefusesNonCanonicalText"),
    Bug("any version is read", MANIFEST, "if (version > Manifest::kVersion)",
        "if (version == 0)", "Manifest.ReportsAnIntactUnknownVersionAsNewer"),
    # Single files.
    Bug("a replaced file is not synced", ATOMIC, "  file_.sync();\n", "",
        "AtomicFile.KeepsTheOldFileOrTheNewAfterACrash"),
    Bug("the name of a replaced file is not durable", ATOMIC,
        "  files_.sync_folder(folder_of(path_));\n", "",
        "AtomicFile.KeepsTheOldFileOrTheNewAfterACrash"),
    Bug("a file is overwritten in place", ATOMIC, "  path += \".tmp\";\n", "",
        "AtomicFile.KeepsTheOldFileOrTheNewAfterACrash"),
    # The journal.
    Bug("the journal is not synced", JOURNAL, "synchronous = FULL", "synchronous = OFF",
        "Journal.SyncsEveryChange"),
    Bug("a change is never committed", JOURNAL, "        *trial);\n  transaction.commit();\n",
        "        *trial);\n",
        "Journal.KeepsAcknowledgedSubmissionsOnceOverKills"),
    Bug("a row of the journal is believed", JOURNAL, "if (hash_of(trial) != at.text(7))",
        "if (at.text(7).empty())", "Journal.DetectsAllDamage"),
    Bug("the journal's own log is kept", JOURNAL, "wal_autocheckpoint = 1",
        "wal_autocheckpoint = 1000", "Journal.LosesNothingByADamagedLog"),
    Bug("the config of a known submission is not compared", JOURNAL,
        "if (known->config == config) return", "return", "Journal.StoresASubmissionOnce"),
    Bug("two processes have one folder", LOCK, "wanted = whole_file(F_WRLCK)",
        "wanted = whole_file(F_RDLCK)", "RunLock.NamesTheHolder"),
    Bug("asking who has a folder takes the lock", LOCK,
        "::fcntl(file, F_OFD_GETLK, &other) == 0 && other.l_type != F_UNLCK",
        "::fcntl(file, F_OFD_SETLK, &other) != 0", "RunLock.CanBeQueriedWithoutTakingIt"),
    Bug("a lock is written through a link", LOCK,
        "kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK",
        "kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK", "RunLock.NeverWritesThroughALink"),
    # Contracts.
    Bug("other kernels go unnoticed", CONTRACT, "!(difference.then && difference.now)", "true",
        "Contract.ComparesFingerprintsThatBothHave"),
    Bug("contracts without fingerprints are refused", CONTRACT,
        " || cannot_be_compared(difference)", "",
        "Contract.ComparesFingerprintsThatBothHave"),
    # Foreign files.
    Bug("the product of a shape overflows", TENSORS,
        "if (__builtin_mul_overflow(bytes, static_cast<Bytes>(dim), &bytes)) return std::nullopt;",
        "bytes *= static_cast<Bytes>(dim);",
        "SafetensorsReader.RefusesBytesThatDoNotFitTypeAndShape"),
    Bug("tensors may overlap", TENSORS, "if (tensor.begin != end)", "if (tensor.begin > end)",
        "SafetensorsReader.RefusesHolesAndOverlaps"),
    Bug("a header's length is believed", TENSORS,
        "length > kMaxHeaderBytes || length > source.size - kLengthBytes",
        "length > kMaxHeaderBytes",
        "SafetensorsReader.RefusesAShortFileBeforeAllocating"),
    Bug("the last of equal names wins", TENSORS_JSON, "if (!seen.insert(text).second)",
        "if (seen.insert(text); false)", "SafetensorsReader.RefusesDuplicateNames"),
]
