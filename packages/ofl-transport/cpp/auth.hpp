// What proves at connect that both ends hold the same key.  Owns the formulas and the nonces; knows no socket, clock or
// file, never logs, and never compares a secret in a time that depends on it.
//
// The client names itself and its wishes (ConnectBody, with a nonce), the server answers with a nonce (ChallengeBody),
// the client proves (ProofBody), and the server proves (AcceptBody.mac):
//
//     proof.mac  = HMAC-SHA-256(key, "ofl client proof\0" + connect + challenge)
//     accept.mac = HMAC-SHA-256(key, "ofl server proof\0" + connect + challenge + accept with a mac of zeros)
//
// over the bodies as they lie on the wire, which all have one size each.  Hence a proof says everything that was
// negotiated, is good for one pair of nonces, and is of no use to the other role.  Another header version must bring
// other labels, because the headers are not part of it.
//
// A client that has a key takes no accept frame before it was challenged, and a server that has one takes no request
// before the proof: whoever calls this sees to that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "key_file.hpp"
#include "status.hpp"
#include "wire.hpp"

namespace ofl {

using Mac = std::array<std::uint8_t, wire::kMacBytes>;

// Whether libcrypto is here and computes what it should; otherwise what to install.
[[nodiscard]] Outcome hmac_available();

// False, and a mac of zeros, where libcrypto is missing or refuses.
[[nodiscard]] bool hmac_sha256(std::span<const std::uint8_t> key, std::span<const std::uint8_t> message,
                               Mac& mac) noexcept;

// Random bytes of the kernel.
[[nodiscard]] Outcome fill_nonce(std::span<std::uint8_t> nonce);

// An empty key proves nothing and is proven by nothing.
[[nodiscard]] Outcome client_proof(const Key& key, const wire::ConnectBody& connect,
                                   const wire::ChallengeBody& challenge, wire::ProofBody& proof);
[[nodiscard]] bool proves_client(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                                 const wire::ProofBody& proof) noexcept;

// Fills accept.mac; every other field of it is final by then.
[[nodiscard]] Outcome server_proof(const Key& key, const wire::ConnectBody& connect,
                                   const wire::ChallengeBody& challenge, wire::AcceptBody& accept);
[[nodiscard]] bool proves_server(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                                 const wire::AcceptBody& accept) noexcept;

// What is used of OpenSSL, opened at run time so that the library runs where it is missing.
struct Libcrypto {
  unsigned char* (*hmac)(const void* digest, const void* key, int key_bytes, const unsigned char* message,
                         std::size_t message_bytes, unsigned char* mac, unsigned int* mac_bytes) = nullptr;
  int (*compare)(const void* one, const void* other, std::size_t bytes) = nullptr;  // 0: equal; in constant time
  const void* sha256 = nullptr;
};

// Whether it gives the known answer.  Some builds load and then refuse: a configuration, a provider that is missing.
[[nodiscard]] bool computes_hmac(const Libcrypto& library) noexcept;

// From the first of these libraries that can be loaded, which then stays until the process ends.
[[nodiscard]] Outcome open_libcrypto(std::span<const char* const> names, Libcrypto& library);

}  // namespace ofl
