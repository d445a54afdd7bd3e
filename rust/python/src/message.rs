//! Signing messages, verifying them one by one, and the message as an object.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use gossiplog_core::batch::{CheckedValue, check, verify_signatures};
use gossiplog_core::message::{self, Codec, Parsed};
use gossiplog_core::signature::{self, Claim, Ed25519, Scheme};
use gossiplog_core::{Error, id};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::{convert, invalid};
use crate::unlocked::{SHORT, unlocked};
use crate::value;

/// What pickle stores: a function, and its arguments.
type Reduced<'py, 'a> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, &'a str));

/// A message whose signature was verified. It is what `append` returns and what a log is read as.
///
/// Equal to another if both have the same bytes. It can be pickled; what comes back reads its payload as raw_payload.
#[pyclass(frozen, generic, module = "gossiplog._core")]
pub struct SignedMessage {
    value: PyBackedBytes,
    parsed: Arc<Parsed>,
    /// What `payload` is read by: that of its log. Not visited by the garbage collector: it belongs to a class of the
    /// application, which stays, and a message that the collector has to look at costs more.
    reader: Option<Py<PyAny>>,
}

impl SignedMessage {
    pub fn new(value: PyBackedBytes, parsed: Arc<Parsed>) -> Self {
        Self { value, parsed, reader: None }
    }
}

#[pymethods]
impl SignedMessage {
    /// The 20 bytes that `id` is the text of.
    #[getter]
    fn key(&self) -> &[u8] {
        &self.parsed.key
    }

    /// The id, as text: ids sort in causal order.
    #[getter]
    fn id(&self) -> String {
        id::encode(&self.parsed.key)
    }

    /// The topic of the log that it is for.
    #[getter]
    fn topic(&self) -> &str {
        self.parsed.topic(&self.value)
    }

    /// 1 + the largest clock of its parents.
    #[getter]
    fn clock(&self) -> u64 {
        self.parsed.clock
    }

    /// The ids of the messages that it follows.
    #[getter]
    fn parents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parents: Vec<String> = self.parsed.parents(&self.value).map(|key| id::encode(&key)).collect();
        PyTuple::new(py, parents)
    }

    /// What its author appended, read anew by each look: changing it changes nothing.
    #[getter]
    fn payload<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match &slf.get().reader {
            Some(reader) => reader.bind(slf.py()).call1((slf,)),
            None => slf.get().raw_payload(slf.py()),
        }
    }

    /// What its author appended as values of the IPLD data model, whatever type the log has for payloads.
    #[getter]
    fn raw_payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        value::decode(py, self.parsed.payload(&self.value))
    }

    /// The same message, whose payload is what a function returns for it.
    fn with_reader(&self, py: Python<'_>, reader: Py<PyAny>) -> Self {
        Self { value: self.value.clone_ref(py), parsed: Arc::clone(&self.parsed), reader: Some(reader) }
    }

    /// The `did:key` of the key that signed it.
    #[getter]
    fn author(&self) -> Cow<'_, str> {
        self.parsed.did(&self.value)
    }

    /// The codec of the bytes that were signed: "dag-cbor" or "dag-json".
    #[getter]
    fn codec(&self) -> &'static str {
        self.parsed.codec.name()
    }

    /// The 64 bytes of the signature.
    #[getter]
    fn signature(&self) -> &[u8] {
        self.parsed.signature(&self.value)
    }

    /// What a log stores and peers exchange: `Log.insert` takes it.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok((&self.value).into_pyobject(py)?)
    }

    /// Whether it is encoded as its author encoded it; False for a relay's other encoding of it.
    #[getter]
    fn canonical(&self) -> bool {
        self.parsed.is_canonical()
    }

    /// The id that all encodings of the message have in common.
    #[getter]
    fn content_id(&self) -> String {
        id::encode(&self.parsed.content_key(&self.value))
    }

    fn __eq__(&self, other: &Self) -> bool {
        *self.value == *other.value
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.parsed.key.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<SignedMessage {} by {}>", self.id(), self.author())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py, '_>> {
        let read = py.import("gossiplog._core")?.getattr("read_message")?;
        Ok((read, (self.value(py)?, self.topic())))
    }
}

/// Checks a stored value against every rule, its signature included. Raises InvalidMessage.
#[pyfunction]
pub fn verify(py: Python<'_>, value: PyBackedBytes, topic: &str) -> PyResult<SignedMessage> {
    let values = [value];
    let verdict = py.detach(|| {
        let mut verdicts = check(&values, topic);
        verify_signatures(&values, &mut verdicts);
        verdicts.pop()
    });
    let [value] = values;
    match verdict {
        Some(CheckedValue::Fresh(parsed) | CheckedValue::Duplicate(parsed)) => Ok(SignedMessage::new(value, parsed)),
        Some(CheckedValue::Invalid(reason)) => Err(invalid(&reason)),
        None => Err(convert(Error::Invalid("there is no verdict".to_owned()))),
    }
}

/// Like verify, for a value whose signature was verified when it came in: everything is checked but the signature.
#[pyfunction]
pub fn read_message(py: Python<'_>, value: PyBackedBytes, topic: &str) -> PyResult<SignedMessage> {
    match unlocked(py, value.len() > SHORT, || message::parse(&value, topic)) {
        Ok(parsed) => Ok(SignedMessage::new(value, Arc::new(parsed))),
        Err(reason) => Err(invalid(&reason)),
    }
}

/// An Ed25519 key pair that signs messages.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct SigningKey(pub signature::SigningKey);

#[pymethods]
impl SigningKey {
    #[new]
    fn new(private_key: &[u8]) -> PyResult<Self> {
        let seed = private_key.try_into().map_err(|_| {
            convert(Error::Encode(format!("an Ed25519 private key has 32 bytes, this has {}", private_key.len())))
        })?;
        Ok(Self(signature::SigningKey::new(seed)))
    }

    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.public_key())
    }

    #[getter]
    fn did(&self) -> &str {
        self.0.did()
    }

    fn __repr__(&self) -> String {
        format!("<SigningKey of {}>", self.0.did())
    }

    /// Signs bytes of another protocol, which says in them what they are for.
    fn sign_bytes<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &unlocked(py, bytes.len() > SHORT, || self.0.sign(bytes)))
    }

    /// Signs a message: its key and stored value. Parents are ids, in any order; the clock is 1 + the largest of theirs.
    ///
    /// Raises EncodeError for a payload, topic or clock that other peers refuse, DecodeError for a parent that is no id.
    #[pyo3(signature = (topic, clock, parents, payload, codec = "dag-cbor"))]
    fn sign<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        clock: u64,
        parents: Vec<PyBackedStr>,
        payload: &Bound<'py, PyAny>,
        codec: &str,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let codec = codec_of(codec)?;
        let parents: Result<Vec<_>, _> = parents.iter().map(|parent| id::decode(parent)).collect();
        let parents = parents.map_err(convert)?;
        let payload = value::encode(payload)?;
        let signed = py.detach(|| message::sign(topic, clock, &parents, &payload, &self.0, codec));
        let (key, value) = signed.map_err(convert)?;
        Ok((PyBytes::new(py, &key), PyBytes::new(py, &value)))
    }
}

/// Whether an Ed25519 key, 32 bytes, signed these bytes; a key or a signature of another length never did.
#[pyfunction]
pub fn verify_bytes(py: Python<'_>, public_key: &[u8], signature: &[u8], bytes: &[u8]) -> bool {
    let sound = public_key.len() == Ed25519.key_length() && signature.len() == Ed25519.signature_length();
    sound && py.detach(|| Ed25519.verify(&[Claim { key: public_key, signature, bytes }])) == [true]
}

pub fn codec_of(name: &str) -> PyResult<Codec> {
    let unknown = || convert(Error::Encode(format!("the codec is {name:?}; it must be dag-cbor or dag-json")));
    Codec::from_name(name).ok_or_else(unknown)
}

/// Signs a single message with a private key: see `SigningKey.sign`.
#[pyfunction]
#[pyo3(signature = (topic, clock, parents, payload, private_key, codec = "dag-cbor"))]
pub fn sign<'py>(
    py: Python<'py>,
    topic: &str,
    clock: u64,
    parents: Vec<PyBackedStr>,
    payload: &Bound<'py, PyAny>,
    private_key: &[u8],
    codec: &str,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    SigningKey::new(private_key)?.sign(py, topic, clock, parents, payload, codec)
}
