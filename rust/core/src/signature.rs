//! Public keys as did:key URIs, and the signature schemes behind them (wire format, "Signature verdicts").

use std::cell::RefCell;
use std::collections::HashMap;

use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity as _;
use ed25519_dalek::Signer as _;
use ed25519_zebra::{Signature, VerificationKeyBytes, batch};
use sha2::{Digest as _, Sha512};

use crate::base58;
use crate::cid::varint;
use crate::error::Error;

/// A claim that `key` signed `bytes`.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The public key, as long as the scheme says.
    pub key: &'a [u8],
    /// The signature, as long as the scheme says.
    pub signature: &'a [u8],
    /// What was signed.
    pub bytes: &'a [u8],
}

/// Passes bytes on in parts.
pub type WriteParts<'a> = dyn FnMut(&mut dyn FnMut(&[u8])) -> Result<(), Error> + 'a;

/// A signature scheme, known by the multicodec of its public keys.
pub trait Scheme: Sync {
    /// The multicodec in front of a public key in its did:key.
    fn multicodec(&self) -> u64;
    /// The scheme's name in messages to users.
    fn name(&self) -> &'static str;
    /// The bytes of a public key.
    fn key_length(&self) -> usize;
    /// The bytes of a signature.
    fn signature_length(&self) -> usize;
    /// The verdict on each claim; it must not depend on the others.
    fn verify(&self, claims: &[Claim<'_>]) -> Vec<bool>;
    /// The verdict on one claim over the bytes that `write` passes on in parts: no memory holds them all.
    ///
    /// # Errors
    /// What `write` fails with.
    fn verify_parts(&self, key: &[u8], signature: &[u8], write: &mut WriteParts<'_>) -> Result<bool, Error>;
}

/// The schemes that have a verdict.
pub static SCHEMES: &[&dyn Scheme] = &[&Ed25519];

/// Ed25519 as canvas-js verifies it: by ZIP-215 (cofactored, S below the order, points of small order and points that
/// are not encoded canonically allowed), but with the points' canonical encodings in the challenge. So the verdict is the
/// same one by one and in batches.
pub struct Ed25519;

/// The multicodec of Ed25519 public keys.
pub const ED25519: u64 = 0xed;

/// Below this many claims, a batch that failed is tried one by one.
const SPLIT: usize = 32;

impl Scheme for Ed25519 {
    fn multicodec(&self) -> u64 {
        ED25519
    }

    fn name(&self) -> &'static str {
        "Ed25519"
    }

    fn key_length(&self) -> usize {
        32
    }

    fn signature_length(&self) -> usize {
        64
    }

    /// Claims are verified together, equal keys coalesced. A batch that fails is halved until the culprits are alone: one
    /// bad claim among n costs about as much again as the n good ones.
    fn verify(&self, claims: &[Claim<'_>]) -> Vec<bool> {
        let items: Vec<Option<batch::Item>> = claims.iter().map(item).collect();
        let mut verdicts = vec![false; claims.len()];
        let mut undecided = vec![(0, claims.len())];
        while let Some((start, end)) = undecided.pop() {
            let all = end - start == claims.len();
            if end - start == 1 || (end - start <= SPLIT && !all) {
                for at in start..end {
                    verdicts[at] = items[at].clone().is_some_and(|item| item.verify_single().is_ok());
                }
                continue;
            }
            let mut verifier = batch::Verifier::new();
            items[start..end].iter().flatten().for_each(|item| verifier.queue(item.clone()));
            if verifier.verify(rand::rng()).is_ok() {
                for at in start..end {
                    verdicts[at] = items[at].is_some();
                }
            } else {
                let middle = start.midpoint(end);
                undecided.extend([(start, middle), (middle, end)]);
            }
        }
        verdicts
    }

    /// `ed25519-zebra` takes messages as a whole only. This is its equation (ZIP-215): 8R = 8(sB - kA).
    fn verify_parts(&self, key: &[u8], signature: &[u8], write: &mut WriteParts<'_>) -> Result<bool, Error> {
        let (Ok(mut key), Some((commitment, scalar))) = (<[u8; 32]>::try_from(key), signature.split_first_chunk())
        else {
            return Ok(false);
        };
        let mut commitment: [u8; 32] = *commitment;
        canonical_point(&mut key);
        canonical_point(&mut commitment);
        let mut hasher = Sha512::new();
        hasher.update(commitment);
        hasher.update(key);
        write(&mut |part| hasher.update(part))?;
        let challenge = Scalar::from_bytes_mod_order_wide(&hasher.finalize().into());
        let scalar = scalar.try_into().ok().and_then(|scalar| Scalar::from_canonical_bytes(scalar).into_option());
        let point = |encoded: [u8; 32]| CompressedEdwardsY(encoded).decompress();
        let (Some(scalar), Some(key), Some(commitment)) = (scalar, point(key), point(commitment)) else {
            return Ok(false);
        };
        let expected = EdwardsPoint::vartime_double_scalar_mul_basepoint(&challenge, &-key, &scalar);
        Ok((commitment - expected).mul_by_cofactor().is_identity())
    }
}

/// canvas-js hashes both points into the challenge as it would encode them, not as they came.
fn item(claim: &Claim<'_>) -> Option<batch::Item> {
    let mut key = <[u8; 32]>::try_from(claim.key).ok()?;
    let mut signature = <[u8; 64]>::try_from(claim.signature).ok()?;
    canonical_point(&mut key);
    if let Some(commitment) = signature.first_chunk_mut() {
        canonical_point(commitment);
    }
    Some(batch::Item::from((VerificationKeyBytes::from(key), Signature::from(signature), claim.bytes)))
}

/// Encodes a point of edwards25519 canonically (RFC 8032, 5.1.2): y below p = 2^255 - 19, and no sign where x is 0.
fn canonical_point(encoded: &mut [u8; 32]) {
    let sign = encoded[31] & 0x80;
    encoded[31] &= 0x7f;
    if encoded[0] >= 0xed && encoded[31] == 0x7f && encoded[1..31].iter().all(|&byte| byte == 0xff) {
        let excess = encoded[0] - 0xed;
        *encoded = [0; 32];
        encoded[0] = excess;
    }
    // x is 0 where y is 1 or p - 1.
    let is_one = encoded[0] == 1 && encoded[1..].iter().all(|&byte| byte == 0);
    let is_minus_one = encoded[0] == 0xec && encoded[31] == 0x7f && encoded[1..31].iter().all(|&byte| byte == 0xff);
    if !is_one && !is_minus_one {
        encoded[31] |= sign;
    }
}

/// An Ed25519 key pair, and its author's URI: made once for many signatures, since the public key costs as much as one.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    did: String,
    author: Author,
}

impl SigningKey {
    /// From a private key, the 32-byte seed of RFC 8032.
    pub fn new(private_key: &[u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(private_key);
        let public_key = key.verifying_key().to_bytes();
        let author = Author { scheme: &Ed25519, key: public_key.to_vec(), is_shortest: true };
        Self { key, did: encode_did(&Ed25519, &public_key), author }
    }

    /// The public key.
    pub fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// The did:key URI of the public key.
    pub fn did(&self) -> &str {
        &self.did
    }

    /// The author that the URI names.
    pub fn author(&self) -> &Author {
        &self.author
    }

    /// Signs bytes.
    pub fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.key.sign(bytes).to_bytes()
    }
}

/// The shortest did:key URI of a public key.
fn encode_did(scheme: &dyn Scheme, public_key: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut rest = scheme.multicodec();
    while rest > 0x7f {
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes.extend_from_slice(public_key);
    format!("did:key:z{}", base58::encode(&bytes))
}

/// Base58 of the longest varint that JavaScript's arithmetic can read (147 bytes), and a key, takes fewer characters.
const MAX_DID_LENGTH: usize = 300;

/// The author that a did:key URI names.
#[derive(Clone)]
pub struct Author {
    /// The scheme of the key.
    pub scheme: &'static dyn Scheme,
    /// The public key.
    pub key: Vec<u8>,
    /// Whether no shorter URI names the same key: a multicodec may be longer than it needs to be.
    pub is_shortest: bool,
}

impl Author {
    /// The shortest did:key URI of the key.
    pub fn did(&self) -> String {
        encode_did(self.scheme, &self.key)
    }
}

/// The author that a did:key URI names.
///
/// # Errors
/// [`Error::Invalid`] for other URIs, schemes without a verdict, and keys of another length than their scheme's.
pub fn decode_did(did: &str) -> Result<Author, Error> {
    AUTHORS.with_borrow_mut(|authors| {
        if let Some(author) = authors.get(did) {
            return Ok(author.clone());
        }
        let author = read_did(did)?;
        if authors.len() >= MAX_REMEMBERED {
            authors.clear();
        }
        authors.insert(did.to_owned(), author.clone());
        Ok(author)
    })
}

/// How many authors a thread remembers.
const MAX_REMEMBERED: usize = 1024;

thread_local! {
    /// Authors by their URI: base58 costs as much as all other checks of a message together, and authors write again.
    static AUTHORS: RefCell<HashMap<String, Author>> = RefCell::new(HashMap::new());
}

fn read_did(did: &str) -> Result<Author, Error> {
    let refuse = |reason: String| Err(Error::Invalid(reason));
    let digits = did.strip_prefix("did:key:z").filter(|digits| !digits.is_empty() && did.len() <= MAX_DID_LENGTH);
    let bytes = digits.and_then(base58::decode);
    let Some(bytes) = bytes else {
        return refuse("the public key must be a did:key URI in base58btc".to_owned());
    };
    let Some((code, length)) = varint(&bytes) else {
        return refuse("the did:key ends within its multicodec".to_owned());
    };
    let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.multicodec() as f64 == code) else {
        let known: Vec<_> = SCHEMES.iter().map(|scheme| scheme.name()).collect();
        let name = multicodec_name(code);
        return refuse(format!("keys of the type {name} have no verdict here; known are {}", known.join(", ")));
    };
    let key = &bytes[length..];
    if key.len() != scheme.key_length() {
        let (name, expected) = (scheme.name(), scheme.key_length());
        return refuse(format!("an {name} public key has {expected} bytes, this has {}", key.len()));
    }
    let is_shortest = length == 1 || bytes[length - 1] != 0;
    Ok(Author { scheme: *scheme, key: key.to_vec(), is_shortest })
}

/// Names from the multicodec table for the key types that did:key documents mention.
fn multicodec_name(code: f64) -> String {
    let name = match code {
        231.0 => "secp256k1",
        236.0 => "x25519",
        4608.0 => "p256",
        4609.0 => "p384",
        4610.0 => "p521",
        _ => return format!("multicodec {code}"),
    };
    name.to_owned()
}
