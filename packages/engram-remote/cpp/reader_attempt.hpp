// One stretch of a file on its way into a buffer, whoever reads it: what to ask the kernel for next, and what its answer
// means.  Pure: no descriptor, no memory; both backends and the tests drive it.
//
// A short answer is never an end.  With O_DIRECT the rest is asked for from the last whole block on, since offset and
// length must stay aligned; nothing at all where bytes are needed is the end of the file, which no row of a whole shard
// meets.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace engram {

// What the kernel is asked for.
struct ReadStep {
  std::uint64_t offset = 0;  // of the file
  std::size_t at = 0;        // of the buffer
  std::size_t bytes = 0;
};

class ReadAttempt {
 public:
  enum class Verdict : std::uint8_t { done, again, failed };

  // Answers in a row that brought nothing (EINTR, EAGAIN, less than a block) before the read is given up.
  static constexpr unsigned kFruitlessMax = 64;
  static constexpr int kEndOfFile = 0;  // as an error: the file ends where a row should be

  ReadAttempt() noexcept = default;
  // needed: bytes that must arrive.  asked: bytes that are asked for, whole blocks; the last ones may lie past the end of
  // the file.  block: what offsets and lengths are multiples of; 1 without O_DIRECT.
  ReadAttempt(std::uint64_t offset, std::size_t needed, std::size_t asked, std::size_t block) noexcept
      : offset_(offset), needed_(needed), asked_(asked), block_(block) {}

  ReadStep step() const noexcept { return {offset_ + have_, have_, asked_ - have_}; }

  // answer: bytes read, or a negated errno.
  Verdict took(std::int64_t answer) noexcept {
    if (answer < 0) return answer == -EINTR || answer == -EAGAIN ? fruitless(static_cast<int>(-answer)) : fail(static_cast<int>(-answer));
    if (answer == 0) return fail(kEndOfFile);
    short_ = short_ || static_cast<std::size_t>(answer) < asked_ - have_;
    const std::size_t end = have_ + static_cast<std::size_t>(answer);
    if (end >= needed_) return Verdict::done;
    const std::size_t whole = end - end % block_;
    if (whole <= have_) return fruitless(EIO);
    have_ = whole;
    fruitless_ = 0;
    return Verdict::again;
  }

  // Of a failed one: an errno, or kEndOfFile.
  int error() const noexcept { return error_; }
  // The kernel gave less than it was asked for at least once.
  bool was_short() const noexcept { return short_; }

 private:
  Verdict fruitless(int error) noexcept { return ++fruitless_ > kFruitlessMax ? fail(error) : Verdict::again; }
  Verdict fail(int error) noexcept {
    error_ = error;
    return Verdict::failed;
  }

  std::uint64_t offset_ = 0;
  std::size_t needed_ = 0;
  std::size_t asked_ = 0;
  std::size_t block_ = 1;
  std::size_t have_ = 0;  // a multiple of block_
  unsigned fruitless_ = 0;
  int error_ = kEndOfFile;
  bool short_ = false;
};

}  // namespace engram
