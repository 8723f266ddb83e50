// Reads through one io_uring, where it was built in; the caller alone submits, reaps and scatters.

#include "reader.hpp"

#ifdef ENGRAM_URING

#include <array>
#include <vector>

#include <liburing.h>

#include "reader_attempt.hpp"
#include "reader_memory.hpp"

namespace engram {

namespace {

constexpr unsigned kDepth = 128;  // reads under way

const char* hint(int error) noexcept {
  return error == EPERM    ? " (kernel.io_uring_disabled, or a container's seccomp profile)"
         : error == ENOMEM ? " (the limit of locked memory)"
                           : "";
}

class UringReader final : public Reader {
 public:
  explicit UringReader(std::uint32_t extent_bytes_max)
      : extent_bytes_max_(extent_bytes_max), buffers_(aligned_bytes(std::size_t{kDepth} * extent_bytes_max)) {
    free_.reserve(kDepth);
  }
  ~UringReader() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  Outcome open();
  std::optional<ReadFault> read(const ReadPlan& plan) noexcept override;
  std::string describe() const override { return "io_uring, " + std::to_string(kDepth) + " reads under way"; }

 private:
  struct Slot {
    const Extent* extent = nullptr;
    ReadAttempt attempt;
  };

  std::byte* buffer(unsigned slot) const noexcept { return buffers_.get() + std::size_t{slot} * extent_bytes_max_; }
  std::optional<ReadFault> give_up(const ReadPlan& plan, int error) noexcept;
  void feed(const ReadPlan& plan) noexcept;
  void ask(const ReadPlan& plan, unsigned slot) noexcept;
  void reap(const ReadPlan& plan) noexcept;
  void took(const ReadPlan& plan, unsigned slot, int answer) noexcept;

  const std::uint32_t extent_bytes_max_;
  AlignedBytes buffers_;
  io_uring ring_{};
  bool open_ = false;
  std::array<Slot, kDepth> slots_;
  std::vector<unsigned> free_;
  std::size_t next_ = 0;       // extent
  std::size_t under_way_ = 0;  // reads that the kernel has or gets with the next submit
  std::optional<ReadFault> fault_;
};

Outcome UringReader::open() {
  const int error = ::io_uring_queue_init(kDepth, &ring_, 0);
  if (error < 0) return failure(ENGRAM_SYSTEM, "the kernel makes no io_uring: " + errno_text(-error) + hint(-error));
  open_ = true;
  return {};
}

// Ends only when nothing is under way any more: the buffers are the next read's.
std::optional<ReadFault> UringReader::read(const ReadPlan& plan) noexcept {
  free_.clear();
  for (unsigned slot = kDepth; slot > 0; --slot) free_.push_back(slot - 1);
  if (plan.extents().empty()) return std::nullopt;
  next_ = 0;
  fault_.reset();
  if (!open_ && ::io_uring_queue_init(kDepth, &ring_, 0) < 0) return ReadFault{*plan.extents().data(), ENOSYS};
  open_ = true;
  for (;;) {
    feed(plan);
    if (under_way_ == 0) return fault_;
    const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
    const bool passing = submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY;
    if (submitted < 0 && !passing) return give_up(plan, -submitted);
    reap(plan);
  }
}

// The kernel takes nothing any more.  What it had taken before is waited for, since it writes to the buffers; then the
// next read gets a new ring.
std::optional<ReadFault> UringReader::give_up(const ReadPlan& plan, int error) noexcept {
  if (!fault_) fault_ = ReadFault{*plan.extents().data(), error};
  const std::size_t never_taken = ::io_uring_sq_ready(&ring_);
  io_uring_cqe* entry = nullptr;
  while (under_way_ > never_taken) {
    static_cast<void>(::io_uring_wait_cqe(&ring_, &entry));
    reap(plan);
  }
  under_way_ = 0;
  ::io_uring_queue_exit(&ring_);
  open_ = false;
  return fault_;
}

void UringReader::feed(const ReadPlan& plan) noexcept {
  const std::span<const Extent> extents = plan.extents();
  while (!fault_ && next_ < extents.size() && !free_.empty()) {
    const unsigned slot = free_.back();
    free_.pop_back();
    const Extent& extent = extents[next_++];
    slots_[slot] = {&extent, ReadAttempt(extent.offset, extent.needed, extent.asked, plan.layout(extent).block)};
    ++under_way_;
    ask(plan, slot);
  }
}

void UringReader::ask(const ReadPlan& plan, unsigned slot) noexcept {
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);  // never full: as many entries as slots, each asks once
  const ReadStep step = slots_[slot].attempt.step();
  ::io_uring_prep_read(entry, plan.layout(*slots_[slot].extent).descriptor, buffer(slot) + step.at,
                       static_cast<unsigned>(step.bytes), step.offset);
  ::io_uring_sqe_set_data64(entry, slot);
}

void UringReader::reap(const ReadPlan& plan) noexcept {
  io_uring_cqe* entry = nullptr;
  while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
    const auto slot = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
    const int answer = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    took(plan, slot, answer);
  }
}

void UringReader::took(const ReadPlan& plan, unsigned slot, int answer) noexcept {
  Slot& mine = slots_[slot];
  const ReadAttempt::Verdict verdict = mine.attempt.took(answer);
  if (verdict == ReadAttempt::Verdict::again && !fault_) {
    ask(plan, slot);
    return;
  }
  if (verdict == ReadAttempt::Verdict::failed && !fault_) fault_ = ReadFault{*mine.extent, mine.attempt.error()};
  if (verdict == ReadAttempt::Verdict::done && !fault_) plan.scatter(*mine.extent, buffer(slot));
  free_.push_back(slot);
  --under_way_;
}

}  // namespace

Outcome uring_available() {
  io_uring ring{};
  const int error = ::io_uring_queue_init(2, &ring, 0);
  if (error < 0) return failure(ENGRAM_SYSTEM, "the kernel makes no io_uring: " + errno_text(-error) + hint(-error));
  io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring);
  const bool reads = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  if (probe != nullptr) ::io_uring_free_probe(probe);
  ::io_uring_queue_exit(&ring);
  if (!reads) return failure(ENGRAM_SYSTEM, "this kernel's io_uring has no plain reads (they came with Linux 5.6)");
  return {};
}

Outcome make_uring_reader(std::uint32_t extent_bytes_max, std::unique_ptr<Reader>& reader) {
  auto made = std::make_unique<UringReader>(extent_bytes_max);
  Outcome outcome = made->open();
  if (outcome) reader = std::move(made);
  return outcome;
}

}  // namespace engram

#else

namespace engram {

Outcome uring_available() {
  return failure(ENGRAM_SYSTEM,
                 "this build has no io_uring: liburing was not there when it was built (Debian: liburing-dev)");
}

Outcome make_uring_reader(std::uint32_t, std::unique_ptr<Reader>&) { return uring_available(); }

}  // namespace engram

#endif
