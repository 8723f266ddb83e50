// What a client asks and what may answer it: settings and lookups that follow from choices, and replies made of the bytes of
// an input, from arbitrary ones to sound ones.  Written with the offsets of the document, not with the library's records.
#pragma once

#include <cstdint>
#include <vector>

#include "client_frame.hpp"
#include "contract.hpp"
#include "harness.hpp"

namespace fuzz {

using Message = std::vector<std::byte>;

// Of small tables: most faults do not ask for large ones.
engram::ClientSettings any_settings(Choices& choices);

// A lookup under some settings, and what the contract must know of it.
class Question {
 public:
  Question(const engram::ClientSettings& settings, Choices& choices);
  // The lookup points into it.
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  const engram::ClientLookup& lookup() const noexcept { return lookup_; }
  contract::LookupAsked asked(std::uint64_t batch) const;
  // The request for it, as its bytes must be.
  void judge_request(contract::Bytes request, std::uint64_t batch) const;

 private:
  const engram::ClientSettings& settings_;
  std::vector<std::vector<std::int32_t>> ids_;
  std::vector<engram_batch> batches_;
  engram::ClientLookup lookup_;
};

contract::OpenAsked open_asked(const engram::ClientSettings& settings, std::uint64_t batch);
void judge_open_request(contract::Bytes request, const engram::ClientSettings& settings, std::uint64_t batch);

// XXH3; 0 where this build has none.
std::uint64_t sum(contract::Bytes bytes, std::uint64_t seed);

// What a server may answer, of the bytes of the input and by choice: anything, a refusal, or what is sound but for a little.
class Answers {
 public:
  Answers(Bytes stream, Choices& choices) : stream_(stream), choices_(choices) {}
  Message to_open(const contract::OpenAsked& asked);
  // seed: of the checksum.
  Message to_lookup(const contract::LookupAsked& asked, std::uint64_t seed);

 private:
  std::byte next();  // of the input; zeros behind its end
  Message rest(std::size_t bytes_max);
  Message header(std::uint8_t op, std::uint64_t batch, std::uint16_t status, std::size_t body_bytes);
  Message arbitrary(std::uint8_t op, std::uint64_t batch);
  Message refusal(std::uint8_t op, std::uint64_t batch);
  void damage(Message& message, std::size_t from);

  Bytes stream_;
  Choices& choices_;
};

}  // namespace fuzz
