// Frames out of a stream, however the stream is cut.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "frame_reader.hpp"

using namespace ofl;

namespace {

struct Frame {
  std::uint64_t sequence;
  std::string body;
  bool operator==(const Frame&) const = default;
};

// Keeps what completes; may drop bodies, and may refuse a sequence.
class Kept final : public Inbox {
 public:
  Landing landing(const wire::FrameHeader& header) noexcept override {
    if (header.sequence == refused) return {nullptr, "sequence is one that the test refuses"};
    body_.assign(header.body_bytes, '?');
    return {dropping ? nullptr : reinterpret_cast<std::byte*>(body_.data()), nullptr};
  }
  void completed(const wire::FrameHeader& header) noexcept override { frames.push_back({header.sequence, body_}); }
  std::byte* memory() noexcept { return reinterpret_cast<std::byte*>(body_.data()); }

  std::vector<Frame> frames;
  bool dropping = false;
  std::uint64_t refused = 0;

 private:
  std::string body_;
};

std::string pattern(std::size_t bytes, std::size_t seed) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * 7 + seed) % 26);
  return text;
}

void append(std::string& stream, std::uint64_t sequence, const std::string& body) {
  const wire::FrameHeader header = wire::make_header(wire::FrameType::request, sequence, body.size());
  stream.append(reinterpret_cast<const char*>(&header), sizeof header);
  stream += body;
}

std::span<const std::byte> bytes_of(const std::string& text, std::size_t from, std::size_t count) {
  return std::as_bytes(std::span(text)).subspan(from, count);
}

struct Stream {
  std::string bytes;
  std::vector<Frame> frames;
};

Stream sample() {
  Stream stream;
  for (const std::size_t size : {0, 1, 23, 24, 25, 0, 100, 3000, 0}) {
    stream.frames.push_back({stream.frames.size() + 1, pattern(size, size)});
    append(stream.bytes, stream.frames.back().sequence, stream.frames.back().body);
  }
  return stream;
}

}  // namespace

TEST(a_stream_cut_into_equal_pieces_gives_the_same_frames) {
  const Stream stream = sample();
  for (std::size_t piece = 1; piece <= stream.bytes.size(); ++piece) {
    FrameReader reader;
    Kept kept;
    for (std::size_t at = 0; at < stream.bytes.size(); at += piece)
      CHECK(reader.take(kept, bytes_of(stream.bytes, at, std::min(piece, stream.bytes.size() - at))));
    CHECK(kept.frames == stream.frames);
    CHECK(!reader.mid_frame());
    CHECK(reader.bytes_received() == stream.bytes.size());
  }
}

TEST(a_stream_that_is_partly_put_in_place_gives_the_same_frames) {
  const Stream stream = sample();
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    FrameReader reader;
    Kept kept;
    for (std::size_t at = 0; at < stream.bytes.size();) {
      std::size_t piece = std::min<std::size_t>(1 + random() % 200, stream.bytes.size() - at);
      const std::span<std::byte> room = reader.body_room();
      if (room.empty() || random() % 2 == 0) {
        CHECK(reader.take(kept, bytes_of(stream.bytes, at, piece)));
      } else {
        piece = std::min(piece, room.size());
        std::memcpy(room.data(), stream.bytes.data() + at, piece);
        reader.landed(kept, piece);
      }
      at += piece;
    }
    CHECK(kept.frames == stream.frames);
    CHECK(reader.bytes_received() == stream.bytes.size());
  }
}

TEST(mid_frame_holds_from_the_first_byte_of_a_frame_to_its_last) {
  std::string stream;
  append(stream, 1, pattern(10, 0));
  FrameReader reader;
  Kept kept;
  CHECK(!reader.mid_frame());
  for (std::size_t at = 0; at < stream.size(); ++at) {
    CHECK(reader.take(kept, bytes_of(stream, at, 1)));
    CHECK(reader.mid_frame() == (at + 1 < stream.size()));
  }
}

TEST(a_dropped_body_leaves_the_frames_after_it_whole) {
  std::string stream;
  append(stream, 1, pattern(1000, 1));
  const std::size_t second = stream.size();
  append(stream, 2, pattern(50, 2));
  FrameReader reader;
  Kept kept;
  kept.dropping = true;
  CHECK(reader.take(kept, bytes_of(stream, 0, 500)));
  CHECK(reader.body_room().empty());
  CHECK(reader.take(kept, bytes_of(stream, 500, second - 500)));
  kept.dropping = false;
  CHECK(reader.take(kept, bytes_of(stream, second, stream.size() - second)));
  CHECK(kept.frames.size() == 2);
  CHECK(kept.frames.back() == (Frame{2, pattern(50, 2)}));
}

TEST(a_retracted_body_touches_its_memory_no_more) {
  std::string stream;
  append(stream, 1, pattern(1000, 1));
  FrameReader reader;
  Kept kept;
  CHECK(reader.take(kept, bytes_of(stream, 0, 500)));
  std::byte other{};
  reader.retract(&other);
  CHECK(!reader.body_room().empty());
  reader.retract(kept.memory());
  CHECK(reader.body_room().empty());
  CHECK(reader.take(kept, bytes_of(stream, 500, stream.size() - 500)));
  CHECK(kept.frames.size() == 1);
  CHECK(kept.frames[0].body == pattern(1000, 1).substr(0, 500 - sizeof(wire::FrameHeader)) + std::string(524, '?'));
}

TEST(after_a_broken_header_nothing_is_taken) {
  std::string stream;
  append(stream, 1, "good");
  const std::size_t broken = stream.size();
  append(stream, 2, "bad");
  append(stream, 3, "good");
  stream[broken] = '\0';
  FrameReader reader;
  Kept kept;
  CHECK(!reader.take(kept, bytes_of(stream, 0, stream.size())));
  CHECK(reader.fault() != nullptr && std::strstr(reader.fault(), "magic") != nullptr);
  CHECK(!reader.take(kept, bytes_of(stream, 0, broken)));
  CHECK(kept.frames.size() == 1);
}

TEST(what_the_inbox_refuses_is_the_fault) {
  std::string stream;
  append(stream, 1, "one");
  append(stream, 2, "two");
  FrameReader reader;
  Kept kept;
  kept.refused = 2;
  CHECK(!reader.take(kept, bytes_of(stream, 0, stream.size())));
  CHECK(std::string(reader.fault()) == "sequence is one that the test refuses");
  CHECK(kept.frames.size() == 1);
}
