// One ring between a writer and a reader: every place, full and empty, and what a hostile other end can write.

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "check.hpp"
#include "shm_ring.hpp"

using namespace ofl;

namespace {

constexpr std::size_t kSmall = 8192;  // of a ring that is quickly gone round

// Memory of a ring with both its ends, as one process sees it.
class Ring {
 public:
  explicit Ring(std::size_t bytes) : lines_(new Line[bytes / kLineBytes]()), bytes_(bytes) {}

  std::span<std::byte> memory() noexcept { return {lines_[0].bytes, bytes_}; }
  std::uint64_t& mark(std::uint64_t position) noexcept {
    return *reinterpret_cast<std::uint64_t*>(memory().data() + position % bytes_);
  }

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };
  std::unique_ptr<Line[]> lines_;
  std::size_t bytes_;

 public:
  alignas(kLineBytes) std::uint64_t taken = 0;
  RingWriter writer{memory(), taken};
  RingReader reader{memory(), taken};
};

unsigned char byte_of(std::uint64_t record, std::size_t at) { return static_cast<unsigned char>(record * 31 + at * 7 + 1); }

// Writes one record, if there is room for all of it.
bool write(Ring& ring, std::size_t bytes, std::uint64_t record) {
  const std::span<std::byte> room = ring.writer.room(bytes);
  if (room.size() < bytes) return false;
  for (std::size_t i = 0; i < bytes; ++i) room[i] = std::byte{byte_of(record, i)};
  ring.writer.publish(bytes);
  return true;
}

bool holds(std::span<const std::byte> bytes, std::uint64_t record, std::size_t skip = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != std::byte{byte_of(record, skip + i)}) return false;
  return true;
}

bool read(Ring& ring, std::size_t bytes, std::uint64_t record) {
  const std::span<const std::byte> front = ring.reader.front();
  const bool good = front.size() == bytes && holds(front, record);
  if (!front.empty()) ring.reader.release();
  return good;
}

}  // namespace

TEST(an_empty_ring_has_no_record_and_nearly_all_room) {
  Ring ring(kSmall);
  CHECK(ring.reader.front().empty());
  CHECK(ring.reader.fault() == nullptr);
  CHECK(ring.writer.room(1).size() == 1);
  // All but the line of the mark after it.
  CHECK(ring.writer.room(kSmall).size() == kSmall - kLineBytes - kMarkBytes);
}

TEST(a_record_comes_out_as_it_went_in_at_every_place_of_the_ring) {
  for (std::uint64_t start = 0; start < kSmall / kLineBytes; ++start) {
    for (std::size_t bytes = 1; bytes <= 3 * kLineBytes; ++bytes) {
      Ring ring(kSmall);
      for (std::uint64_t line = 0; line < start; ++line) CHECK(write(ring, 1, line) && read(ring, 1, line));
      // In pieces where the ring ends, as a channel sends it.
      std::size_t sent = 0;
      std::size_t seen = 0;
      while (sent < bytes) {
        const std::span<std::byte> room = ring.writer.room(bytes - sent);
        if (room.empty()) break;
        for (std::size_t i = 0; i < room.size(); ++i) room[i] = std::byte{byte_of(start, sent + i)};
        ring.writer.publish(room.size());
        sent += room.size();
      }
      for (std::span<const std::byte> front = ring.reader.front(); !front.empty(); front = ring.reader.front()) {
        CHECK(holds(front, start, seen));
        seen += front.size();
        ring.reader.release();
      }
      CHECK(sent == bytes && seen == bytes && ring.reader.fault() == nullptr);
    }
  }
}

TEST(a_full_ring_refuses_and_goes_on_when_a_record_was_taken) {
  Ring ring(kSmall);
  std::uint64_t written = 0;
  while (write(ring, kFirstLineBytes, written)) ++written;
  CHECK(written == kSmall / kLineBytes - 1);  // one line waits for the next mark
  std::uint64_t taken = 0;
  for (int round = 0; round < 1000; ++round) {
    CHECK(!write(ring, 1, written));
    CHECK(read(ring, kFirstLineBytes, taken++));
    CHECK(write(ring, kFirstLineBytes, written++));
  }
  while (taken < written) CHECK(read(ring, kFirstLineBytes, taken++));
  CHECK(ring.reader.front().empty() && ring.reader.fault() == nullptr);
}

TEST(a_large_record_is_cut_to_the_room_that_there_is_but_never_to_crumbs) {
  Ring ring(4 * kPieceBytesMin);
  CHECK(write(ring, 2 * kPieceBytesMin - kMarkBytes, 0));
  CHECK(ring.writer.room(4 * kPieceBytesMin).size() == 2 * kPieceBytesMin - kLineBytes - kMarkBytes);
  CHECK(write(ring, kPieceBytesMin, 1));
  CHECK(ring.writer.room(kPieceBytesMin).empty());
  CHECK(ring.writer.room(100).size() == 100);
}

TEST(bytes_that_look_like_marks_are_never_taken_for_one) {
  Ring ring(kSmall);
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t bytes = 1 + random() % 1000;
    std::span<std::byte> room = ring.writer.room(bytes);
    if (random() % 4 == 0) room = room.first(1 + random() % room.size());  // less than there was room for
    // On every line of it, the mark that would be good one round later.
    for (std::size_t i = kFirstLineBytes; i + kMarkBytes <= room.size(); i += kLineBytes) {
      const std::uint64_t mark = make_mark(ring.writer.position() + kMarkBytes + i + kSmall, 8);
      std::memcpy(room.data() + i, &mark, sizeof mark);
    }
    ring.writer.publish(room.size());
    CHECK(ring.reader.front().size() == room.size());
    ring.reader.release();
    CHECK(ring.reader.front().empty() && ring.reader.fault() == nullptr);
  }
}

TEST(an_index_ahead_of_what_was_written_is_a_fault) {
  Ring ring(kSmall);
  while (write(ring, kFirstLineBytes, 0)) {
  }
  ring.taken = ring.writer.position() + 1;
  CHECK(ring.writer.room(1).empty());
  CHECK(ring.writer.fault() == kTakenAheadFault);
}

TEST(an_index_that_moves_backwards_is_a_fault) {
  Ring ring(kSmall);
  std::uint64_t record = 0;
  while (write(ring, kFirstLineBytes, record)) ++record;
  ring.taken = 10 * kLineBytes;
  while (write(ring, kFirstLineBytes, record)) ++record;
  ring.taken = 9 * kLineBytes;
  CHECK(ring.writer.room(1).empty());
  CHECK(ring.writer.fault() == kTakenBackFault);
}

TEST(an_index_inside_a_line_does_not_give_the_line_back) {
  Ring ring(4 * kPieceBytesMin);
  while (write(ring, kFirstLineBytes, 0)) {
  }
  ring.taken = kLineBytes - 1;
  CHECK(ring.writer.room(1).empty());
  CHECK(ring.writer.fault() == nullptr);
  ring.taken = kPieceBytesMin + 2 * kLineBytes - 1;
  CHECK(write(ring, kFirstLineBytes, 0));  // the line at the end
  CHECK(ring.writer.room(3 * kPieceBytesMin).size() == kPieceBytesMin - kMarkBytes);
  ring.writer.publish(kPieceBytesMin - kMarkBytes);
  CHECK(ring.writer.room(1).empty());
}

TEST(a_mark_with_a_wrong_place_or_size_is_a_fault) {
  const struct {
    std::uint64_t position;  // of the reader
    std::uint64_t mark;
    const char* fault;
  } cases[] = {
      {0, make_mark(kLineBytes, 8), kMarkPlaceFault},
      {0, ~std::uint64_t{0}, kMarkPlaceFault},
      {kLineBytes, make_mark(kLineBytes, 0), kMarkBytesFault},
      {0, make_mark(0, kSmall - kMarkBytes), kMarkBytesFault},  // no line is left for the next mark
      {0, make_mark(0, kSmall), kMarkBytesFault},
      {0, make_mark(0, 0xFFFFFFFF), kMarkBytesFault},
      {kSmall - kLineBytes, make_mark(kSmall - kLineBytes, kFirstLineBytes + 1), kMarkBytesFault},  // over the end
  };
  for (const auto& [position, mark, fault] : cases) {
    Ring ring(kSmall);
    for (std::uint64_t line = 0; line < position / kLineBytes; ++line) CHECK(write(ring, 1, line) && read(ring, 1, line));
    ring.mark(position) = mark;
    CHECK(ring.reader.front().empty());
    CHECK(ring.reader.fault() == fault);
  }
}

TEST(any_bytes_in_the_ring_give_records_inside_it_or_a_fault) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    Ring ring(kSmall);
    for (std::uint64_t position = 0; position < kSmall; position += kLineBytes) {
      const std::uint64_t bytes = random() % 3 == 0 ? random() % kSmall : random() % 200;
      ring.mark(position) = random() % 50 == 0 ? random() : make_mark(position, bytes);
    }
    for (int step = 0; step < 200; ++step) {
      const std::span<const std::byte> front = ring.reader.front();
      if (front.empty()) break;
      const std::byte* begin = ring.memory().data();
      CHECK(front.data() >= begin + kMarkBytes && front.data() + front.size() <= begin + kSmall);
      ring.reader.release();
      CHECK(ring.taken == ring.reader.position());
    }
  }
}

// Both ends at once, over a ring that is always nearly full or nearly empty.
TEST(a_writer_and_a_reader_at_once_lose_and_tear_nothing) {
  constexpr std::uint64_t kRecords = 200'000;
  Ring ring(kSmall);
  const auto size_of = [](std::uint64_t record) { return static_cast<std::size_t>(1 + record * 2654435761U % 500); };
  std::uint64_t bad = 0;
  std::atomic<bool> reader_left{false};
  std::thread reader([&] {
    for (std::uint64_t record = 0; record < kRecords; ++record) {
      std::size_t seen = 0;
      while (seen < size_of(record)) {
        const std::span<const std::byte> front = ring.reader.front();
        if (front.empty()) {
          if (ring.reader.fault() != nullptr) break;
          std::this_thread::yield();
          continue;
        }
        if (!holds(front, record, seen)) ++bad;
        seen += front.size();
        ring.reader.release();
      }
      if (seen != size_of(record)) ++bad;
      if (ring.reader.fault() != nullptr) break;
    }
    reader_left = true;
  });
  for (std::uint64_t record = 0; record < kRecords; ++record) {
    for (std::size_t sent = 0; sent < size_of(record);) {
      const std::span<std::byte> room = ring.writer.room(size_of(record) - sent);
      if (room.empty()) {
        if (ring.writer.fault() != nullptr || reader_left) break;
        std::this_thread::yield();
        continue;
      }
      for (std::size_t i = 0; i < room.size(); ++i) room[i] = std::byte{byte_of(record, sent + i)};
      ring.writer.publish(room.size());
      sent += room.size();
    }
  }
  reader.join();
  CHECK(bad == 0);
  CHECK(ring.reader.fault() == nullptr && ring.writer.fault() == nullptr);
}
