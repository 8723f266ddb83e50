// One LOOKUP on its way through the server: what it asks for, where its rows go, and which pieces of it are still to be done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "ofl_library.hpp"
#include "reply_buffers.hpp"
#include "request.hpp"
#include "server_tables.hpp"

namespace engram {

// A connection, from its CONNECTED to its DISCONNECTED; lookups keep it beyond.
struct Session {
  std::vector<const Table*> layers;  // empty: not open.  Written by the receiver alone
  std::uint32_t batch_rows_max = 0;
  std::uint64_t open_sum = 0;  // checksum of OPEN's body, where this build has checksums
  std::atomic<std::uint32_t> unanswered{0};
};

struct FreeBody {
  void operator()(void* body) const noexcept { ofl().body_free(body); }
};
using OwnedBody = std::unique_ptr<void, FreeBody>;

struct Lookup {
  struct Part {
    const Table* table;
    const std::byte* ids;
    std::uint32_t count;
    std::byte* values;
    std::byte* scales;
  };
  // Ids begin .. end-1 of a part.
  struct Piece {
    std::uint32_t part;
    std::uint32_t begin;
    std::uint32_t end;
  };

  std::uint64_t connection = 0;
  std::uint64_t sequence = 0;
  std::uint64_t batch = 0;
  std::uint64_t asked_sum = 0;  // with CHECKSUM: of the request's body, seeded with OPEN's
  std::uint32_t flags = 0;
  std::uint32_t rows = 0;
  std::size_t reply_bytes = 0;
  Nanoseconds begun = 0;
  std::shared_ptr<Session> session;
  std::vector<Part> parts;
  OwnedBody body;                 // of a message that was handed over
  std::vector<std::byte> copied;  // ids of one that was not
  ReplyBuffer* buffer = nullptr;

  std::vector<Piece> pieces;
  std::size_t pieces_taken = 0;  // by the pool, under its mutex
  std::atomic<std::size_t> pieces_left{0};
  std::atomic<std::uint64_t> bad_id{kAllRowsFound};  // part and position of the first bad id, in one number

  // Parts and sizes of a request; ids stay where the view has them.
  void take(const LookupView& view, const Session& of);
  // Keeps a copy of the ids, which are about to go.
  void copy_ids();
  // Gives every part its planes in the buffer, with zeros between them.
  void place(ReplyBuffer* into);
  // Cuts it into pieces of at most `rows_max` rows.  A lookup without rows has one piece, of none.
  void cut(std::uint32_t rows_max);
  // Fills a piece's rows.
  void fill(const Piece& piece) noexcept;
  std::uint64_t absent() const noexcept;
  Fault bad_id_fault() const;
};

}  // namespace engram
