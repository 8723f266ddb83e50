#include "reader_attempt.hpp"

#include "check.hpp"

using engram::ReadAttempt;
using Verdict = engram::ReadAttempt::Verdict;

TEST(an_answer_that_brings_all_that_is_needed_is_done) {
  ReadAttempt attempt(8192, 300, 512, 512);
  CHECK(attempt.step().offset == 8192 && attempt.step().at == 0 && attempt.step().bytes == 512);
  CHECK(attempt.took(300) == Verdict::done);  // the file ends within the block: what is needed is there
  CHECK(attempt.was_short());
}

TEST(a_short_answer_is_followed_from_the_last_whole_block) {
  ReadAttempt attempt(4096, 1500, 1536, 512);
  CHECK(attempt.took(700) == Verdict::again);
  CHECK(attempt.step().offset == 4096 + 512 && attempt.step().at == 512 && attempt.step().bytes == 1024);
  CHECK(attempt.took(1024) == Verdict::done);
}

TEST(without_blocks_a_short_answer_is_followed_from_where_it_ended) {
  ReadAttempt attempt(100, 264, 264, 1);
  CHECK(attempt.took(1) == Verdict::again);
  CHECK(attempt.step().offset == 101 && attempt.step().at == 1 && attempt.step().bytes == 263);
  CHECK(attempt.took(263) == Verdict::done);
}

TEST(the_end_of_the_file_within_what_is_needed_fails_and_is_no_error_number) {
  ReadAttempt attempt(0, 264, 512, 512);
  CHECK(attempt.took(0) == Verdict::failed);
  CHECK(attempt.error() == ReadAttempt::kEndOfFile);
  ReadAttempt later(0, 264, 264, 1);
  CHECK(later.took(200) == Verdict::again);
  CHECK(later.took(0) == Verdict::failed);
  CHECK(later.error() == ReadAttempt::kEndOfFile);
}

TEST(interruptions_are_repeated_but_not_for_ever) {
  ReadAttempt attempt(0, 264, 264, 1);
  for (unsigned i = 0; i < ReadAttempt::kFruitlessMax; ++i)
    CHECK(attempt.took(i % 2 == 0 ? -EINTR : -EAGAIN) == Verdict::again);
  CHECK(attempt.took(-EINTR) == Verdict::failed);
  CHECK(attempt.error() == EINTR);
}

TEST(less_than_a_block_again_and_again_fails_and_progress_forgives) {
  ReadAttempt attempt(0, 1500, 1536, 512);
  for (unsigned i = 0; i < ReadAttempt::kFruitlessMax; ++i) CHECK(attempt.took(100) == Verdict::again);
  CHECK(attempt.took(512) == Verdict::again);  // a block: from here on it counts anew
  for (unsigned i = 0; i < ReadAttempt::kFruitlessMax; ++i) CHECK(attempt.took(100) == Verdict::again);
  CHECK(attempt.took(100) == Verdict::failed);
  CHECK(attempt.error() == EIO);
}

TEST(any_other_error_fails_at_once) {
  ReadAttempt attempt(0, 264, 264, 1);
  CHECK(attempt.took(-EIO) == Verdict::failed);
  CHECK(attempt.error() == EIO);
}
