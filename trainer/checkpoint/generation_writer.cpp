#include "trainer/checkpoint/generation_writer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/xxh3.h"
#include "core/os/open_file.h"
#include "trainer/checkpoint/manifest.h"

namespace spillway {
namespace {

/// The manifest with zeros for hashes: it has the final length.
Manifest blank_manifest(const GenerationContent& content, Bytes block_bytes) {
  Manifest manifest{.job = content.job,
                    .step = content.step,
                    .build = content.build,
                    .contract = content.contract,
                    .block_bytes = block_bytes};
  const std::string zeros(32, '0');
  for (const auto& file : content.files) {
    const auto count = num_blocks(file.bytes, block_bytes);
    manifest.files.push_back(
        {.name = file.name, .bytes = file.bytes, .blocks = std::vector(count, zeros)});
  }
  return manifest;
}

OpenFile reserve(FileSystem& files, const FileSystem::Path& path, Bytes bytes) {
  auto file = OpenFile::create(files, path);
  file.preallocate(bytes);
  return file;
}

void finish(OpenFile& file) {
  file.sync();
  file.close();
}

void write_file(OpenFile& file, const GenerationFile& content, Bytes block_bytes,
                ManifestFile& entry) {
  std::vector<std::byte> buffer(std::min(block_bytes, content.bytes));
  for (std::size_t i = 0; i < entry.blocks.size(); ++i) {
    const Bytes offset = i * block_bytes;
    const auto block = std::span(buffer).first(std::min(block_bytes, content.bytes - offset));
    content.fill(block, offset);
    entry.blocks[i] = xxh3(block);
    file.write_all(block, offset);
  }
}

}  // namespace

void write_generation(FileSystem& files, const FileSystem::Path& folder,
                      const GenerationContent& content, Bytes block_bytes) {
  Manifest manifest = blank_manifest(content, block_bytes);
  const Bytes manifest_bytes = to_text(manifest).size();
  std::vector<OpenFile> open;
  for (const auto& file : content.files)
    open.push_back(reserve(files, folder / file.name, file.bytes));
  OpenFile manifest_file = reserve(files, folder / kManifestName, manifest_bytes);
  for (std::size_t i = 0; i < open.size(); ++i)
    write_file(open[i], content.files[i], block_bytes, manifest.files[i]);
  // Only after the last call of fill(): whoever waits for that need not wait for the disk.
  for (OpenFile& file : open) finish(file);
  const std::string text = to_text(manifest);
  manifest_file.write_all(std::as_bytes(std::span(text)), 0);
  finish(manifest_file);
  files.sync_folder(folder);
}

Bytes generation_bytes(const GenerationContent& content, Bytes block_bytes) {
  const Bytes manifest_bytes = to_text(blank_manifest(content, block_bytes)).size();
  Bytes bytes = kPage + round_up(manifest_bytes, kPage);  // the folder and its manifest
  for (const auto& file : content.files) bytes += round_up(file.bytes, kPage);
  return bytes;
}

}  // namespace spillway
