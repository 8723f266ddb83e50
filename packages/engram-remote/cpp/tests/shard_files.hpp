// Shards for tests, and what their rows must be: a function of seed, row and column, never read back from a file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "client_staging.hpp"
#include "shard_file.hpp"

namespace shard_files {

using engram::ShardHeader;
using engram::ShardSpec;

// A folder that goes with the object.
class Folder {
 public:
  Folder() {
    const char* const base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/engram-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

// All 256 bytes occur in values and in scales of any 256 rows in a row.
inline std::uint8_t row_byte(std::uint32_t seed, std::uint64_t row, std::uint32_t at) {
  std::uint64_t word = row * 0x9E3779B97F4A7C15U + at * 0xBF58476D1CE4E5B9U + seed;
  word ^= word >> 29U;
  word *= 0x94D049BB133111EBU;
  return static_cast<std::uint8_t>(at == 0 ? row + 127 : word >> 56U);
}

inline ShardSpec spec_of(const std::string& path, std::uint64_t rows, std::uint32_t columns = 256, std::uint32_t scales = 8,
                         std::uint64_t row_start = 1000) {
  ShardSpec spec{.path = path, .layer = 14, .rank = 1, .ranks = 2, .columns = columns, .scales = scales};
  spec.row_start = row_start;
  spec.row_end = row_start + rows;
  spec.source_sha256.fill(0x5A);
  return spec;
}

inline ShardHeader header_of(const ShardSpec& spec) {
  ShardHeader header{};
  header.magic = engram::kShardMagic;
  header.format_version = engram::kShardFormatVersion;
  header.header_bytes = engram::kShardHeaderBytes;
  header.layer = spec.layer;
  header.rank = spec.rank;
  header.ranks = spec.ranks;
  header.columns = spec.columns;
  header.scales = spec.scales;
  header.scale_block = spec.columns / spec.scales;
  header.row_bytes = spec.columns + spec.scales;
  header.value_dtype = engram::kValueE4m3fn;
  header.scale_dtype = engram::kScaleE8m0;
  header.row_start = spec.row_start;
  header.row_end = spec.row_end;
  header.source_sha256 = spec.source_sha256;
  return header;
}

inline void write_shard(const ShardSpec& spec, const ShardHeader& header, std::uint32_t seed = 1) {
  std::ofstream file(spec.path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  std::vector<char> row(spec.columns + spec.scales);
  for (std::uint64_t id = spec.row_start; id < spec.row_end; ++id) {
    for (std::uint32_t i = 0; i < row.size(); ++i) row[i] = static_cast<char>(row_byte(seed, id, i));
    file.write(row.data(), static_cast<std::streamsize>(row.size()));
  }
}

inline void write_shard(const ShardSpec& spec, std::uint32_t seed = 1) { write_shard(spec, header_of(spec), seed); }

// Rows of the planes that are not what the id's row must be, or not zeros where the shard has no such row.
inline std::size_t wrong_rows(const ShardSpec& spec, const std::vector<std::int32_t>& ids, const engram::Planes& planes,
                              std::uint32_t seed = 1) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = ids[i];
    const bool inside = id >= static_cast<std::int64_t>(spec.row_start) && id < static_cast<std::int64_t>(spec.row_end);
    bool same = true;
    for (std::uint32_t at = 0; at < spec.columns + spec.scales; ++at) {
      const std::byte found = at < spec.columns ? planes.values[i * spec.columns + at]
                                                : planes.scales[i * spec.scales + (at - spec.columns)];
      const std::uint8_t wanted = inside ? row_byte(seed, static_cast<std::uint64_t>(id), at) : std::uint8_t{0};
      same = same && std::to_integer<std::uint8_t>(found) == wanted;
    }
    wrong += same ? 0U : 1U;
  }
  return wrong;
}

// Poisoned memory for the planes of one batch.
struct Room {
  Room(std::size_t rows, std::uint32_t columns, std::uint32_t scales)
      : bytes(rows * (columns + scales) + 1, std::byte{0xA5}), planes{bytes.data(), bytes.data() + rows * columns} {}
  std::vector<std::byte> bytes;
  engram::Planes planes;
};

inline std::vector<std::int32_t> random_ids(const ShardSpec& spec, std::size_t count, std::uint32_t seed = 7) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int32_t> draw(static_cast<std::int32_t>(spec.row_start),
                                                   static_cast<std::int32_t>(spec.row_end) - 1);
  std::vector<std::int32_t> ids(count);
  for (std::int32_t& id : ids) id = draw(random);
  return ids;
}

}  // namespace shard_files
