//! Slots that are used again and again, for values that are too large to move.

/// Bits of a generation.
pub(crate) const GENERATION_MASK: u32 = (1 << 24) - 1;

/// Values by index. Each kind of waiting value has a slab of its own, so that a small one does not take the space of
/// the largest.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Option<T>>,
    /// Generation of each slot: 24 bits, another one for each use.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), generations: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value into a free slot; returns its index.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        let Some(index) = self.free.pop() else {
            self.places.push(Some(value));
            self.generations.push(0);
            return (self.places.len() - 1) as u32;
        };
        self.places[index as usize] = Some(value);
        index
    }

    /// Returns the value in the slot, if there is one.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.as_ref()
    }

    /// Returns the value in the slot, to change it.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// Takes a value from its slot.
    #[inline]
    pub fn take(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.release(index);
        Some(value)
    }

    /// Drops a value in its slot.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        if let Some(place @ Some(_)) = self.places.get_mut(index as usize) {
            *place = None;
            self.release(index);
        }
    }

    fn release(&mut self, index: u32) {
        self.renew(index);
        self.free.push(index);
    }

    /// Counts the value as another use of its slot from now on.
    #[inline]
    pub fn renew(&mut self, index: u32) {
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) & GENERATION_MASK;
    }

    /// Returns all values, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }

    /// Number of values.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns the generation of the slot.
    #[inline]
    #[must_use]
    pub fn generation(&self, index: u32) -> u32 {
        self.generations[index as usize]
    }

    /// True if `generation` is the current one of the slot.
    #[inline]
    #[must_use]
    pub fn is_current(&self, index: u32, generation: u32) -> bool {
        self.generations.get(index as usize) == Some(&generation)
    }

    /// Returns the first value for which `is_it` is true.
    #[must_use]
    pub fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<u32> {
        self.places
            .iter()
            .position(|place| place.as_ref().is_some_and(&is_it))
            .map(|index| index as u32)
    }
}
