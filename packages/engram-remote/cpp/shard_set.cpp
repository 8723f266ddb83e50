#include "shard_set.hpp"

#include <algorithm>

#include "reader_attempt.hpp"

namespace engram {

namespace {

constexpr std::uint32_t kExtentBytes = 16384;  // neighbouring rows are read together up to here

Outcome make_reader(const ShardSetOptions& options, std::uint32_t extent_bytes_max, std::unique_ptr<Reader>& reader) {
  if (options.uring && make_uring_reader(extent_bytes_max, reader)) return {};
  return make_pool_reader(options.read_threads, extent_bytes_max, reader);
}

}  // namespace

Outcome ShardSet::open(std::span<const ShardSpec> specs, const ShardSetOptions& options, std::unique_ptr<ShardSet>& set) {
  std::vector<std::unique_ptr<ShardFile>> files(specs.size());
  std::uint32_t extent_bytes_max = kExtentBytes;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Outcome outcome = ShardFile::open(specs[i], options.direct, files[i]);
    if (!outcome) return outcome;
    const RowLayout& layout = files[i]->layout();
    extent_bytes_max = std::max(extent_bytes_max, ReadPlan::extent_bytes_min(layout.row_bytes(), layout.block));
  }
  std::unique_ptr<ShardSet> made(new ShardSet(extent_bytes_max));
  made->files_ = std::move(files);
  const Outcome outcome = make_reader(options, extent_bytes_max, made->reader_);
  if (outcome) set = std::move(made);
  return outcome;
}

Outcome ShardSet::read(std::span<const ShardBatch> batches) {
  plan_.clear();
  for (const ShardBatch& batch : batches) plan_.add({&layout(batch.layer), batch.ids, batch.planes});
  const std::optional<ReadFault> fault = reader_->read(plan_);
  // Asked in any case: a file that was changed explains a fault, and makes rows that look whole worthless.
  for (const ShardBatch& batch : batches) {
    const Outcome outcome = files_[batch.layer]->unchanged();
    if (!outcome) return outcome;
  }
  return fault ? tell(*fault) : Outcome{};
}

Outcome ShardSet::tell(const ReadFault& fault) const {
  const RowLayout* const layout = &plan_.layout(fault.extent);
  const auto mine = [&](const std::unique_ptr<ShardFile>& file) { return &file->layout() == layout; };
  const std::string& path = (*std::find_if(files_.begin(), files_.end(), mine))->path();
  const std::string where = " at byte " + std::to_string(fault.extent.offset);
  if (fault.error == ReadAttempt::kEndOfFile) return failure(ENGRAM_SHARD, path + ": size: the file ends within a row" + where);
  return failure(ENGRAM_SHARD, path + ": cannot be read" + where + ": " + errno_text(fault.error));
}

std::string ShardSet::describe() const {
  const ShardFile& first = *files_.front();
  const std::string how =
      first.direct() ? "O_DIRECT in blocks of " + std::to_string(first.layout().block) : std::string("through the page cache");
  return reader_->describe() + ", " + how;
}

}  // namespace engram
