#include "shard_file.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reader_attempt.hpp"
#include "reader_memory.hpp"

namespace engram {

namespace {

constexpr std::uint32_t kBlockDefault = 4096;  // where the kernel does not say what O_DIRECT wants
constexpr std::uint32_t kBlockMax = 65536;

Outcome wrong(const std::string& path, const char* field, const std::string& detail) {
  return failure(ENGRAM_SHARD, path + ": " + field + ": " + detail);
}

Outcome differs(const std::string& path, const char* field, std::uint64_t found, std::uint64_t wanted) {
  return wrong(path, field, std::to_string(found) + " where " + std::to_string(wanted) + " must stand");
}

// What O_DIRECT wants of offsets, lengths and memory on this file; 0: it takes none.
std::uint32_t direct_block(int descriptor) noexcept {
#if defined(STATX_DIOALIGN) && defined(SYS_statx)
  struct statx facts {};  // the kernel's own, which a C library of those days may lack
  if (::syscall(SYS_statx, descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    const std::uint32_t block = std::max(facts.stx_dio_offset_align, facts.stx_dio_mem_align);
    const bool usable = block != 0 && block <= kBlockMax && (block & (block - 1)) == 0;
    return usable && facts.stx_dio_mem_align <= kBufferAlignment ? block : 0;
  }
#endif
  static_cast<void>(descriptor);
  return kBlockDefault;
}

// A pipe of that name would hold the call up for ever; what is no file is found out afterwards.
int open_file(const char* path, int flags) noexcept {
  int descriptor = -1;
  do descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, flags);  // io_uring would take it at its word
  return descriptor;
}

}  // namespace

ShardFile::ShardFile(const ShardSpec& spec, int descriptor, bool direct)
    : spec_(spec), descriptor_(descriptor), direct_(direct) {
  layout_.first_byte = kShardHeaderBytes;
  layout_.row_start = spec.row_start;
  layout_.row_end = spec.row_end;
  layout_.columns = spec.columns;
  layout_.scales = spec.scales;
  layout_.descriptor = descriptor;
  layout_.block = direct ? direct_block(descriptor) : 1;
}

ShardFile::~ShardFile() { ::close(descriptor_); }

Outcome ShardFile::open(const ShardSpec& spec, bool direct, std::unique_ptr<ShardFile>& file) {
  int descriptor = direct ? open_file(spec.path.c_str(), O_DIRECT) : -1;
  const bool refused = direct && descriptor < 0 && errno == EINVAL;
  if (!direct || refused) descriptor = open_file(spec.path.c_str(), 0);
  if (descriptor < 0) return failure(ENGRAM_SHARD, spec.path + ": cannot be opened: " + errno_text(errno));
  std::unique_ptr<ShardFile> opened(new ShardFile(spec, descriptor, direct && !refused));
  if (opened->layout_.block == 0) return open(spec, false, file);  // the file system says that it has no O_DIRECT
  const Outcome outcome = opened->check();
  if (outcome.status == ENGRAM_INVALID && opened->direct_) return open(spec, false, file);
  if (outcome) file = std::move(opened);
  return outcome;
}

Outcome ShardFile::check() {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0)
    return failure(ENGRAM_SHARD, spec_.path + ": cannot be looked at: " + errno_text(errno));
  if (!S_ISREG(facts.st_mode)) return failure(ENGRAM_SHARD, spec_.path + ": is no regular file");
  const auto bytes = static_cast<std::uint64_t>(facts.st_size);
  if (bytes < kShardHeaderBytes)
    return wrong(spec_.path, "size", std::to_string(bytes) + " bytes are no header of " + std::to_string(kShardHeaderBytes));
  // A page that is dirty already would take stores through a mapping unseen; once written back, the next one is noticed.
  static_cast<void>(::fdatasync(descriptor_));
  Outcome outcome = stamp_now(opened_);
  ShardHeader header{};
  if (outcome) outcome = read_header(header);
  if (outcome) outcome = judge(spec_, header);
  if (outcome && bytes != spec_.file_bytes())
    outcome = wrong(spec_.path, "size",
                    std::to_string(bytes) + " bytes where header and rows make " + std::to_string(spec_.file_bytes()));
  return outcome;
}

// ENGRAM_INVALID: the file system took O_DIRECT and does not do it.
Outcome ShardFile::read_header(ShardHeader& header) {
  const AlignedBytes buffer = aligned_bytes(std::max<std::size_t>(sizeof header, layout_.block));
  const std::size_t asked = std::max<std::size_t>(sizeof header, layout_.block);
  ReadAttempt attempt(0, sizeof header, asked, layout_.block);
  for (;;) {
    const ReadStep step = attempt.step();
    const ssize_t got = ::pread(descriptor_, buffer.get() + step.at, step.bytes, static_cast<off_t>(step.offset));
    const ReadAttempt::Verdict verdict = attempt.took(got < 0 ? -static_cast<std::int64_t>(errno) : got);
    if (verdict == ReadAttempt::Verdict::done) break;
    if (verdict == ReadAttempt::Verdict::again) continue;
    if (direct_ && attempt.error() == EINVAL) return failure(ENGRAM_INVALID, "no O_DIRECT");
    if (attempt.error() == ReadAttempt::kEndOfFile) return wrong(spec_.path, "size", "the file ends within its header");
    return failure(ENGRAM_SHARD, spec_.path + ": the header cannot be read: " + errno_text(attempt.error()));
  }
  std::memcpy(&header, buffer.get(), sizeof header);
  return {};
}

Outcome ShardFile::judge(const ShardSpec& spec, const ShardHeader& header) {
  if (header.magic != kShardMagic) return wrong(spec.path, "magic", "the file does not begin with 'ENGRAMSH'");
  const struct {
    const char* field;
    std::uint64_t found;
    std::uint64_t wanted;
  } fields[] = {
      {"format_version", header.format_version, kShardFormatVersion},
      {"header_bytes", header.header_bytes, kShardHeaderBytes},
      {"layer", header.layer, spec.layer},
      {"rank", header.rank, spec.rank},
      {"ranks", header.ranks, spec.ranks},
      {"columns", header.columns, spec.columns},
      {"scales", header.scales, spec.scales},
      {"scale_block", std::uint64_t{header.scale_block} * spec.scales, spec.columns},
      {"row_bytes", header.row_bytes, std::uint64_t{spec.columns} + spec.scales},
      {"value_dtype", header.value_dtype, kValueE4m3fn},
      {"scale_dtype", header.scale_dtype, kScaleE8m0},
      {"row_start", header.row_start, spec.row_start},
      {"row_end", header.row_end, spec.row_end},
  };
  for (const auto& [field, found, wanted] : fields)
    if (found != wanted) return differs(spec.path, field, found, wanted);
  if (header.source_sha256 != spec.source_sha256)
    return wrong(spec.path, "source_sha256", "the rows were made from something else than the manifest says");
  if (std::any_of(header.reserved0.begin(), header.reserved0.end(), [](std::uint8_t byte) { return byte != 0; }))
    return wrong(spec.path, "reserved0", "reserved bytes must be zero");
  return {};
}

Outcome ShardFile::stamp_now(Stamp& stamp) const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0)
    return failure(ENGRAM_SHARD, spec_.path + ": cannot be looked at: " + errno_text(errno));
  stamp = {.inode = facts.st_ino,
           .bytes = facts.st_size,
           .modified_s = facts.st_mtim.tv_sec,
           .modified_ns = facts.st_mtim.tv_nsec,
           .named = facts.st_nlink > 0};
  return {};
}

Outcome ShardFile::unchanged() const {
  Stamp now;
  const Outcome outcome = stamp_now(now);
  if (!outcome || now == opened_) return outcome;
  if (now.bytes != opened_.bytes)
    return wrong(spec_.path, "size", std::to_string(now.bytes) + " bytes, and " + std::to_string(opened_.bytes) +
                                         " when it was opened: the file was changed while in use");
  if (!now.named) return wrong(spec_.path, "nlink", "the file was removed or replaced while in use");
  return wrong(spec_.path, "mtime", "the file was written to while in use");
}

}  // namespace engram
