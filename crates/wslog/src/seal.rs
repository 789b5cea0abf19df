//! Encryption at rest: AES-256-GCM by OpenSSL, a key for each segment, and for each process that writes to it
//! ([decision 0009](../../../docs/decisions/0009-log-encrypted-per-record.md)).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::md::Md;
use openssl::pkey::Id;
use openssl::pkey_ctx::PkeyCtx;
use openssl::symm::{Cipher, Crypter, Mode};
use trireme_order::StoreError;
use trireme_types::SplitMix;

/// Bytes of a key. It is drawn, not chosen.
pub const KEY_BYTES: usize = 32;
/// Bytes of the salt of a segment or checkpoint.
pub const SALT: usize = 32;
/// Bytes of what authenticates.
pub const TAG: usize = 16;
const NONCE: usize = 12;
const WRITER: usize = 16;
/// Bytes before a sealed record's text: who wrote it, and the how-manieth it is.
pub const SEAL_HEAD: usize = WRITER + 8;
/// Bytes by which a sealed record is longer.
pub const SEAL: usize = SEAL_HEAD + TAG;

type Key = [u8; KEY_BYTES];

/// Names a key and tells nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyId(pub(crate) [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The keys of a log. The first seals what is written; each opens what it sealed.
#[derive(Clone)]
pub struct LogKeys {
    /// Never empty.
    keys: Arc<[(KeyId, Key)]>,
    chance: Chance,
}

impl fmt::Debug for LogKeys {
    /// Never the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// Where salts come from.
#[derive(Clone)]
enum Chance {
    System,
    /// So that a run of the simulator repeats.
    Seed(Arc<Mutex<SplitMix>>),
}

impl Chance {
    fn draw<const N: usize>(&self) -> Result<[u8; N], StoreError> {
        let mut out = [0; N];
        match self {
            Chance::System => openssl::rand::rand_bytes(&mut out).map_err(failed)?,
            Chance::Seed(random) => {
                let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
                out.fill_with(|| random.below(256) as u8);
            }
        }
        Ok(out)
    }
}

impl LogKeys {
    /// **Errors:** there is no key, or OpenSSL does not do its work.
    pub fn new(keys: &[Key]) -> Result<LogKeys, StoreError> {
        let named = keys.iter().map(|key| Ok((id_of(key)?, *key))).collect::<Result<Vec<_>, ErrorStack>>();
        let named = named.map_err(failed)?;
        if named.is_empty() {
            return Err(StoreError::Key("there is no key to encrypt it with".into()));
        }
        Ok(LogKeys { keys: named.into(), chance: Chance::System })
    }

    /// The id by which files name a key.
    pub fn id(key: &[u8; KEY_BYTES]) -> Result<KeyId, StoreError> {
        id_of(key).map_err(failed)
    }

    /// For tests and the simulator only: what is drawn follows from `seed`.
    pub fn with_seed(self, seed: u64) -> LogKeys {
        LogKeys { chance: Chance::Seed(Arc::new(Mutex::new(SplitMix(seed)))), ..self }
    }

    /// The first is that of the key which seals.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.iter().map(|(id, _)| *id)
    }

    /// These, and of `older` those that are not among them.
    pub(crate) fn and_older(&self, older: &LogKeys) -> LogKeys {
        let rest = older.keys.iter().filter(|(id, _)| self.find(*id).is_none());
        LogKeys { keys: self.keys.iter().chain(rest).copied().collect(), chance: older.chance.clone() }
    }

    pub(crate) fn sealing(&self) -> KeyId {
        self.keys[0].0
    }

    fn find(&self, id: KeyId) -> Option<&Key> {
        self.keys.iter().find(|(known, _)| *known == id).map(|(_, key)| key)
    }

    /// A key for a new file, by the first key.
    pub(crate) fn begin(&self, what: What, number: u64) -> Result<(KeyMark, FileKey), StoreError> {
        let mark = KeyMark { key: self.sealing(), salt: self.chance.draw()? };
        Ok((mark, self.file_key(what, number, &mark)?))
    }

    fn file_key(&self, what: What, number: u64, mark: &KeyMark) -> Result<FileKey, StoreError> {
        let key = self.find(mark.key).ok_or_else(|| StoreError::Key("a key is missing".into()))?;
        let mut info = what.label().to_vec();
        info.extend_from_slice(&number.to_le_bytes());
        let key = derive(key, &mark.salt, &info).map_err(failed)?;
        Ok(FileKey { key, chance: self.chance.clone(), writer: Arc::default() })
    }
}

/// The key of the file `name`, which bears `mark`.
///
/// **Errors:** it is not among `keys`.
pub(crate) fn unlock(
    keys: Option<&LogKeys>,
    what: What,
    name: &str,
    number: u64,
    mark: &KeyMark,
) -> Result<FileKey, StoreError> {
    let why = match keys {
        Some(keys) if keys.find(mark.key).is_some() => return keys.file_key(what, number, mark),
        Some(keys) => {
            let ids: Vec<String> = keys.ids().map(|id| id.to_string()).collect();
            format!("the key file holds {} only", ids.join(", "))
        }
        None => "no key file is given".to_owned(),
    };
    Err(StoreError::Key(format!(
        "{name} is encrypted with key {}, and {why}: name the file that holds that key (repl.log_key_file; --key-file of \
         `trireme log`). Nothing was changed. If the key is lost, remove all files named trireme.*.galera.cache in this directory to join as \
         a new member with a full copy",
        mark.key
    )))
}

/// The purpose of a key: one of these opens nothing of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Segment,
    Checkpoint,
}

impl What {
    fn label(self) -> &'static [u8] {
        match self {
            What::Segment => b"trireme log segment ",
            What::Checkpoint => b"trireme log checkpoint ",
        }
    }
}

/// By which key a file is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyMark {
    pub key: KeyId,
    /// No two files have the same.
    pub salt: [u8; SALT],
}

/// The key of one file.
#[derive(Clone)]
pub(crate) struct FileKey {
    key: Key,
    chance: Chance,
    /// By whom the record was written that was opened last, and with which key: most have the same.
    writer: Arc<Mutex<Option<([u8; WRITER], Key)>>>,
}

impl FileKey {
    /// Seals the only text of a file: nothing else is ever sealed with this key and nonce.
    pub fn seal_whole(&self, associated: &[u8], text: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut stream = Stream::new(&self.key_for(WHOLE)?, 0, associated)?;
        let mut out = stream.next(text)?;
        out.extend_from_slice(&stream.end()?);
        Ok(out)
    }

    pub fn open_whole(&self, associated: &[u8], sealed: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        open(&self.key_for(WHOLE)?, 0, associated, sealed)
    }

    /// The same piece by piece.
    pub fn open_in_pieces(&self, associated: &[u8]) -> Result<OpenStream, StoreError> {
        let key = self.key_for(WHOLE)?;
        let begin = || {
            let mut crypter = Crypter::new(Cipher::aes_256_gcm(), Mode::Decrypt, &key, Some(&nonce(0)))?;
            crypter.aad_update(associated)?;
            Ok(crypter)
        };
        Ok(OpenStream { crypter: begin().map_err(failed)?, tail: Vec::new() })
    }

    /// Authenticates the file's header.
    pub fn tag(&self, header: &[u8]) -> Result<[u8; TAG], StoreError> {
        Stream::new(&self.key_for(HEADER)?, 0, header)?.end()
    }

    pub fn is_tag(&self, header: &[u8], tag: &[u8; TAG]) -> Result<bool, StoreError> {
        Ok(open(&self.key_for(HEADER)?, 0, header, tag)?.is_some())
    }

    fn key_for(&self, purpose: &[u8]) -> Result<Key, StoreError> {
        derive(&self.key, &[], purpose).map_err(failed)
    }

    /// To be called once by each process that writes to the file: what it seals shares no key with what others sealed.
    pub fn sealer(&self) -> Result<Sealer, StoreError> {
        let writer = self.chance.draw()?;
        Ok(Sealer { writer, key: self.key_for(&[RECORD, &writer].concat())?, count: 0 })
    }

    /// The content of a record. `None`: not what was sealed.
    pub fn open_record(&self, associated: &[u8], sealed: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let Some((head, rest)) = sealed.split_at_checked(SEAL_HEAD) else { return Ok(None) };
        let (mut writer, mut count) = ([0; WRITER], [0; 8]);
        writer.copy_from_slice(&head[..WRITER]);
        count.copy_from_slice(&head[WRITER..]);
        let key = self.key_of(writer)?;
        Ok(open(&key, u64::from_le_bytes(count), associated, rest)?.map(Bytes::from))
    }

    fn key_of(&self, writer: [u8; WRITER]) -> Result<Key, StoreError> {
        let mut last = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((known, key)) if known == writer => Ok(key),
            _ => {
                let key = self.key_for(&[RECORD, &writer].concat())?;
                *last = Some((writer, key));
                Ok(key)
            }
        }
    }
}

const WHOLE: &[u8] = b"whole";
const HEADER: &[u8] = b"header";
const RECORD: &[u8] = b"record";

/// Seals the records that one process writes to one segment.
pub(crate) struct Sealer {
    writer: [u8; WRITER],
    key: Key,
    /// Texts begun until now, those that came to nothing included.
    count: u64,
}

impl Sealer {
    /// The next text, and the bytes that go before it.
    pub fn begin(&mut self, associated: &[u8]) -> Result<([u8; SEAL_HEAD], Stream), StoreError> {
        let count = self.count;
        self.count += 1;
        let mut head = [0; SEAL_HEAD];
        head[..WRITER].copy_from_slice(&self.writer);
        head[WRITER..].copy_from_slice(&count.to_le_bytes());
        Ok((head, Stream::new(&self.key, count, associated)?))
    }

    /// All of a text, as it goes into a record.
    pub fn seal(&mut self, associated: &[u8], text: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (head, mut stream) = self.begin(associated)?;
        let mut out = Vec::with_capacity(text.len() + SEAL);
        out.extend_from_slice(&head);
        stream.add(text, &mut out)?;
        out.extend_from_slice(&stream.end()?);
        Ok(out)
    }
}

/// A text that is sealed piece by piece.
pub(crate) struct Stream {
    crypter: Crypter,
}

impl Stream {
    fn new(key: &Key, count: u64, associated: &[u8]) -> Result<Stream, StoreError> {
        let begin = || {
            let mut crypter = Crypter::new(Cipher::aes_256_gcm(), Mode::Encrypt, key, Some(&nonce(count)))?;
            crypter.aad_update(associated)?;
            Ok(crypter)
        };
        Ok(Stream { crypter: begin().map_err(failed)? })
    }

    fn add(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<(), StoreError> {
        let from = out.len();
        out.resize(from + text.len(), 0);
        self.crypter.update(text, &mut out[from..]).map_err(failed)?;
        Ok(())
    }

    pub fn next(&mut self, text: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut out = Vec::new();
        self.add(text, &mut out)?;
        Ok(out)
    }

    /// The bytes that go behind the text.
    pub fn end(mut self) -> Result<[u8; TAG], StoreError> {
        let mut tag = [0; TAG];
        self.crypter.finalize(&mut [0; 16]).and_then(|_| self.crypter.get_tag(&mut tag)).map_err(failed)?;
        Ok(tag)
    }
}

/// A text that is opened piece by piece. Its content is to be believed at its end only.
pub(crate) struct OpenStream {
    crypter: Crypter,
    /// The last bytes so far: the tag, if nothing follows.
    tail: Vec<u8>,
}

impl OpenStream {
    /// The text of as much as is known not to be the tag.
    pub fn next(&mut self, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.tail.extend_from_slice(sealed);
        let text = self.tail.len().saturating_sub(TAG);
        let mut out = vec![0; text];
        self.crypter.update(&self.tail[..text], &mut out).map_err(failed)?;
        self.tail.drain(..text);
        Ok(out)
    }

    /// Was all of it what had been sealed?
    pub fn end(mut self) -> Result<bool, StoreError> {
        if self.tail.len() != TAG {
            return Ok(false);
        }
        self.crypter.set_tag(&self.tail).map_err(failed)?;
        Ok(self.crypter.finalize(&mut [0; 16]).is_ok())
    }
}

fn open(key: &Key, count: u64, associated: &[u8], sealed: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let Some((text, tag)) = sealed.len().checked_sub(TAG).and_then(|at| sealed.split_at_checked(at)) else {
        return Ok(None);
    };
    let mut out = vec![0; text.len()];
    let mut begin = || {
        let mut crypter = Crypter::new(Cipher::aes_256_gcm(), Mode::Decrypt, key, Some(&nonce(count)))?;
        crypter.aad_update(associated)?;
        crypter.update(text, &mut out)?;
        crypter.set_tag(tag)?;
        Ok(crypter)
    };
    let mut crypter = begin().map_err(failed)?;
    // It fails for one reason only: the tag does not fit.
    let fits = crypter.finalize(&mut [0; 16]).is_ok();
    Ok(fits.then_some(out))
}

fn nonce(count: u64) -> [u8; NONCE] {
    let mut out = [0; NONCE];
    out[NONCE - 8..].copy_from_slice(&count.to_be_bytes());
    out
}

/// HKDF (RFC 5869) with SHA-256.
fn derive(key: &Key, salt: &[u8], info: &[u8]) -> Result<Key, ErrorStack> {
    let mut out = [0; KEY_BYTES];
    let mut context = PkeyCtx::new_id(Id::HKDF)?;
    context.derive_init()?;
    context.set_hkdf_md(Md::sha256())?;
    context.set_hkdf_key(key)?;
    if !salt.is_empty() {
        context.set_hkdf_salt(salt)?;
    }
    context.add_hkdf_info(info)?;
    context.derive(Some(&mut out))?;
    Ok(out)
}

fn id_of(key: &Key) -> Result<KeyId, ErrorStack> {
    let digest = hash(MessageDigest::sha256(), &[b"trireme log key id".as_slice(), key].concat())?;
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    // Zero says "in clear text".
    id[0] |= 1;
    Ok(KeyId(id))
}

fn failed(error: ErrorStack) -> StoreError {
    StoreError::Key(format!("OpenSSL refuses its work: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> LogKeys {
        let keys: Vec<Key> = bytes.iter().map(|byte| [*byte; KEY_BYTES]).collect();
        LogKeys::new(&keys).unwrap().with_seed(1)
    }

    fn opened(file: &FileKey, associated: &[u8], sealed: &[u8]) -> Option<Bytes> {
        file.open_record(associated, sealed).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_sealed_is_opened_and_nothing_else(
            text in proptest::collection::vec(any::<u8>(), 0..300),
            associated in proptest::collection::vec(any::<u8>(), 0..100),
            cut in 0usize..300,
            flip in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let keys = keys(&[1, 2]);
            let (mark, file) = keys.begin(What::Segment, 7).unwrap();
            let mut sealer = file.sealer().unwrap();
            let sealed = sealer.seal(&associated, &text).unwrap();
            prop_assert_eq!(sealed.len(), text.len() + SEAL);
            prop_assert_eq!(opened(&file, &associated, &sealed), Some(Bytes::from(text.clone())));
            // Piece by piece it is as good.
            let (first, rest) = text.split_at(cut.min(text.len()));
            let (head, mut stream) = sealer.begin(&associated).unwrap();
            let mut pieces = head.to_vec();
            pieces.extend(stream.next(first).unwrap());
            pieces.extend(stream.next(rest).unwrap());
            pieces.extend(stream.end().unwrap());
            prop_assert_eq!(opened(&file, &associated, &pieces), Some(Bytes::from(text.clone())));
            // Any flipped bit, other headers, other files, other keys.
            let mut bad = sealed.clone();
            let at = flip.index(bad.len());
            bad[at] ^= 1 << bit;
            prop_assert_eq!(opened(&file, &associated, &bad), None);
            prop_assert_eq!(opened(&file, &[&associated[..], b"x"].concat(), &sealed), None);
            for (what, number) in [(What::Segment, 8), (What::Checkpoint, 7)] {
                let other = unlock(Some(&keys), what, "", number, &mark).unwrap();
                prop_assert_eq!(opened(&other, &associated, &sealed), None);
            }
            for len in 0..SEAL.min(sealed.len()) {
                prop_assert_eq!(opened(&file, &associated, &sealed[..len]), None);
            }
        }
    }

    #[test]
    fn the_same_text_never_looks_the_same() {
        let keys = keys(&[1]);
        let (mark, _) = keys.begin(What::Segment, 7).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            // Another process that writes to the same segment.
            let file = unlock(Some(&keys), What::Segment, "", 7, &mark).unwrap();
            let mut sealer = file.sealer().unwrap();
            for _ in 0..20 {
                assert!(seen.insert(sealer.seal(b"", b"text").unwrap()));
            }
        }
        // Nor do two files have the same key.
        let (other, _) = keys.begin(What::Segment, 7).unwrap();
        assert_ne!(mark.salt, other.salt);
    }

    #[test]
    fn a_missing_key_is_named_and_no_key_is_told() {
        let (mark, _) = keys(&[1]).begin(What::Segment, 7).unwrap();
        let refused = unlock(Some(&keys(&[2, 3])), What::Segment, "FILE", 7, &mark).err().unwrap().to_string();
        let id = keys(&[1]).sealing().to_string();
        let other = keys(&[3]).sealing().to_string();
        assert!(refused.contains("FILE") && refused.contains(&id) && refused.contains(&other), "{refused}");
        let refused = unlock(None, What::Segment, "FILE", 7, &mark).err().unwrap().to_string();
        assert!(refused.contains("no key file is given"), "{refused}");
        assert!(unlock(Some(&keys(&[2, 1])), What::Segment, "", 7, &mark).is_ok());
        assert!(!format!("{:?}", keys(&[1])).contains("1, 1, 1"));
        assert!(LogKeys::new(&[]).is_err());
    }

    #[test]
    fn header_tags_fit_their_header_only() {
        let (_, file) = keys(&[1]).begin(What::Segment, 7).unwrap();
        let tag = file.tag(b"header").unwrap();
        assert!(file.is_tag(b"header", &tag).unwrap());
        assert!(!file.is_tag(b"heades", &tag).unwrap());
        let sealed = file.seal_whole(b"head", b"text").unwrap();
        assert_eq!(file.open_whole(b"head", &sealed).unwrap().unwrap(), b"text");
        assert_eq!(file.open_whole(b"heat", &sealed).unwrap(), None);
    }
}
