#include "shard_file.hpp"

#include <chrono>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "check.hpp"
#include "shard_files.hpp"

using engram::Outcome;
using engram::ShardFile;
using engram::ShardHeader;
using engram::ShardSpec;

namespace {

Outcome open_shard(const ShardSpec& spec, std::unique_ptr<ShardFile>& file, bool direct = true) {
  return ShardFile::open(spec, direct, file);
}

bool names(const Outcome& outcome, const ShardSpec& spec, const std::string& field) {
  return outcome.status == ENGRAM_SHARD && outcome.text.find(spec.path) == 0 &&
         outcome.text.find(": " + field + ": ") != std::string::npos;
}

struct Shard {
  explicit Shard(std::uint64_t rows = 50) : spec(shard_files::spec_of(folder.file("shard"), rows)) {
    shard_files::write_shard(spec);
  }
  shard_files::Folder folder;
  ShardSpec spec;
};

}  // namespace

TEST(a_pipe_that_is_called_as_a_shard_is_refused_and_not_waited_for) {
  shard_files::Folder folder;
  const ShardSpec spec = shard_files::spec_of(folder.file("shard"), 10);
  CHECK(::mkfifo(spec.path.c_str(), 0600) == 0);
  for (const bool direct : {false, true}) {
    std::unique_ptr<ShardFile> file;
    const Outcome outcome = ShardFile::open(spec, direct, file);
    CHECK(outcome.status == ENGRAM_SHARD && outcome.text.find("is no regular file") != std::string::npos);
  }
}

TEST(a_whole_shard_opens_with_and_without_the_page_cache) {
  const Shard shard;
  for (const bool direct : {true, false}) {
    std::unique_ptr<ShardFile> file;
    const Outcome outcome = open_shard(shard.spec, file, direct);
    CHECK(static_cast<bool>(outcome));
    CHECK(file && static_cast<bool>(file->unchanged()));
    CHECK(file && (direct || (!file->direct() && file->layout().block == 1)));
  }
}

TEST(every_field_of_the_header_is_compared_and_named) {
  const Shard shard;
  const ShardHeader good = shard_files::header_of(shard.spec);
  const auto with = [&](const char* field, auto change) {
    ShardHeader header = good;
    change(header);
    const Outcome outcome = ShardFile::judge(shard.spec, header);
    CHECK(names(outcome, shard.spec, field));
  };
  CHECK(static_cast<bool>(ShardFile::judge(shard.spec, good)));
  with("magic", [](ShardHeader& h) { h.magic[0] = 'X'; });
  with("format_version", [](ShardHeader& h) { ++h.format_version; });
  with("header_bytes", [](ShardHeader& h) { h.header_bytes = 512; });
  with("layer", [](ShardHeader& h) { h.layer = 1; });
  with("rank", [](ShardHeader& h) { h.rank = 0; });
  with("ranks", [](ShardHeader& h) { h.ranks = 4; });
  with("columns", [](ShardHeader& h) { h.columns = 512; });
  with("scales", [](ShardHeader& h) { h.scales = 16; });
  with("scale_block", [](ShardHeader& h) { h.scale_block = 16; });
  with("row_bytes", [](ShardHeader& h) { h.row_bytes = 272; });
  with("value_dtype", [](ShardHeader& h) { h.value_dtype = 2; });
  with("scale_dtype", [](ShardHeader& h) { h.scale_dtype = 2; });
  with("row_start", [](ShardHeader& h) { ++h.row_start; });
  with("row_end", [](ShardHeader& h) { ++h.row_end; });
  with("source_sha256", [](ShardHeader& h) { h.source_sha256[31] ^= 1; });
  with("reserved0", [](ShardHeader& h) { h.reserved0[3999] = 1; });
}

TEST(a_file_that_is_a_byte_a_row_or_a_page_short_or_has_trailing_bytes_is_refused_by_its_size) {
  const Shard shard;
  const auto whole = static_cast<std::int64_t>(shard.spec.file_bytes());
  for (const std::int64_t change : {-1, -264, -4096, 1, 264, 4096}) {
    std::filesystem::resize_file(shard.spec.path, static_cast<std::uintmax_t>(whole + change));
    std::unique_ptr<ShardFile> file;
    CHECK(names(open_shard(shard.spec, file), shard.spec, "size"));
    CHECK(!file);
    shard_files::write_shard(shard.spec);
  }
}

TEST(an_empty_file_a_folder_and_no_file_are_refused_by_name) {
  const Shard shard;
  std::unique_ptr<ShardFile> file;
  std::filesystem::resize_file(shard.spec.path, 0);
  CHECK(names(open_shard(shard.spec, file), shard.spec, "size"));
  ShardSpec other = shard.spec;
  other.path.assign(1, '/');  // of the literal, GCC 12 warns
  CHECK(open_shard(other, file).status == ENGRAM_SHARD);
  other.path = shard.spec.path + ".none";
  const Outcome outcome = open_shard(other, file);
  CHECK(outcome.status == ENGRAM_SHARD && outcome.text.find(other.path) == 0);
}

TEST(a_cut_is_seen_as_another_size) {
  const Shard shard;
  std::unique_ptr<ShardFile> file;
  CHECK(static_cast<bool>(open_shard(shard.spec, file)));
  std::filesystem::resize_file(shard.spec.path, shard.spec.file_bytes() - 264);
  CHECK(names(file->unchanged(), shard.spec, "size"));
}

TEST(a_write_in_place_and_another_file_of_that_name_are_seen) {
  for (const bool replace : {false, true}) {
    Shard shard;
    std::unique_ptr<ShardFile> file;
    CHECK(static_cast<bool>(open_shard(shard.spec, file)));
    struct stat before {};
    ::stat(shard.spec.path.c_str(), &before);
    struct stat now = before;
    // The clock of a file system ticks; write until it did, so that the test is about us.
    while (!replace && now.st_mtim.tv_sec == before.st_mtim.tv_sec && now.st_mtim.tv_nsec == before.st_mtim.tv_nsec) {
      std::fstream stream(shard.spec.path, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(5000);
      stream.put('x');
      stream.close();
      ::stat(shard.spec.path.c_str(), &now);
    }
    if (replace) {
      ShardSpec other = shard.spec;
      other.path = shard.folder.file("other");
      shard_files::write_shard(other, 2);
      std::filesystem::rename(other.path, shard.spec.path);
    }
    CHECK(names(file->unchanged(), shard.spec, replace ? "nlink" : "mtime"));
  }
}

TEST(a_store_through_a_mapping_is_seen_also_in_a_page_that_was_dirty_at_the_opening) {
  Shard shard;
  struct statfs system {};
  CHECK(::statfs(shard.spec.path.c_str(), &system) == 0);
  if (system.f_type == TMPFS_MAGIC) return;  // no store changes a time there, as the documents say
  const int descriptor = ::open(shard.spec.path.c_str(), O_RDWR | O_CLOEXEC);
  void* const base = ::mmap(nullptr, shard.spec.file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  CHECK(base != MAP_FAILED);
  volatile char* const byte = static_cast<char*>(base) + 5000;
  const char value = *byte;
  *byte = value;
  std::unique_ptr<ShardFile> file;
  CHECK(static_cast<bool>(open_shard(shard.spec, file)));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the clock of file times
  *byte = static_cast<char>(value ^ 1);
  CHECK(names(file->unchanged(), shard.spec, "mtime"));
  ::munmap(base, shard.spec.file_bytes());
  ::close(descriptor);
}

TEST(a_shard_whose_mode_owner_or_links_change_is_as_it_was) {
  Shard shard;
  std::unique_ptr<ShardFile> file;
  CHECK(static_cast<bool>(open_shard(shard.spec, file)));
  CHECK(::chmod(shard.spec.path.c_str(), 0400) == 0);
  CHECK(::link(shard.spec.path.c_str(), shard.folder.file("further").c_str()) == 0);
  CHECK(static_cast<bool>(file->unchanged()));
}
